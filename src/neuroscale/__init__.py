"""NeuroScale: from a form's answers to a served open language model on Kubernetes."""

__version__ = "0.1.0"
