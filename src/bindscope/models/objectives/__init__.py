"""What controlled models are trained for: one module a family, named in `core.registries`."""
