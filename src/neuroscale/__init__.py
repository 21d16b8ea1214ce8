"""NeuroScale: from a form's answers to a served open language model on Kubernetes."""

__version__ = "0.2.0"
