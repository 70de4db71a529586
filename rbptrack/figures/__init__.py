"""Charts of Altair: the shapes that analyzers share, the page's explorer, and charts as files."""
