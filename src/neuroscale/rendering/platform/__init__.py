"""What a cluster gets: rendered from settings and catalog into `platform/`, checked in, and applied from there."""
