"""What `export to=NAME` finds by NAME; working folders may have `plugins/exporters/`, too."""
