"""Runs Backstage software templates without Backstage: the same template.yaml and skeleton, in this process."""
