"""Results that come and go: bundles, the authors' folders, plain tables."""
