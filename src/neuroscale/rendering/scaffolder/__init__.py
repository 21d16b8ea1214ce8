"""Backstage software templates without Backstage: the same template.yaml and skeleton, run in this process."""
