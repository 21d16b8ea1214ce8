"""Runs Backstage's templates without Backstage: a template and answers come in, and the files of a service go out."""
