"""What brings others' results in: `import FILE`."""
