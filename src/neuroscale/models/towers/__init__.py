"""Counts the towers for images and sound beside a language model, and the weights that join them to it.

Input: the keys of a whole config.json, and the `Weights` to add to. Output: the towers' weights, sentences on
assumptions and omissions, and how certain the result is (`counting.towers`). `known` lists the model types. Each other
module holds the towers of one lineage: functions that take a tower's keys, the `Weights`, and the language model's
width, and return the tower's own width. All raise InputError, which names the key.

Sources: the modelling code of transformers for the tensors. vLLM splits the matrices of towers that it builds out of
its own layers; it takes the towers of Gemma 4 and of Qwen2-Audio whole from transformers, on every rank.
"""
