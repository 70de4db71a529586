"""Which folders become which packages; everything else about the project is in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = {"rbptrack": "rbptrack", "rbptrack.conf": "conf", "rbptrack.plugins": "plugins"}

packages = list(FOLDERS)
for package, folder in FOLDERS.items():
    packages += [f"{package}.{name}" for name in find_packages(folder)]

setup(
    packages=packages,
    package_dir=FOLDERS,
    package_data={"": ["**/*"]},
    exclude_package_data={"": ["**/*.py[co]", "**/.*"]},
)
