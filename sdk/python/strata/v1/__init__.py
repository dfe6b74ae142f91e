"""The messages and stubs of proto/strata/v1, generated when the package is built."""
