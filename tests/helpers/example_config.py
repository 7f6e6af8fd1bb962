"""A small configuration with something of each kind."""

import yaml

EXAMPLE = yaml.safe_load("""
datasets:
  - name: tiny
    space: {kind: uniform, groups: [{name: color, size: 3}, {name: shape, size: 2}], max_objects: 3}
    split: {rule: random}
    n_scenes: {train: 128, val: 64, test: 64}
    shard_size: {train: 64, val: 64, test: 64}
    render: {kind: shapes, size_px: 32, object_px: 8, margin_px: 1, area: released}
models:
  - name: vit
    source: controlled:objects
    architecture: {n_layers: 1, width: 16, n_heads: 2, patch_px: 8}
    training: {dataset: tiny}
  - {name: identity, source: "known-answer:identity"}
  - {name: half, source: "known-answer:half"}
studies:
  binding_information:
    probes:
      - {name: quadratic, family: quadratic}
      - {name: linear, family: linear}
    fits:
      - {name: all, datasets: [tiny], models: [vit], layers: [0, 1, final], probes: [quadratic]}
      - {name: known, datasets: [tiny], models: [identity], probes: [linear]}
""")
