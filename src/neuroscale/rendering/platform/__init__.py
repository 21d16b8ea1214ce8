"""Renders the files that a cluster gets from settings and catalog into `platform/`, from where Argo CD applies them."""
