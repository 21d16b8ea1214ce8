"""The towers for images and sound beside a language model, and what joins them to it.

In: the keys of a whole config.json, and where weights go. Out: the towers' weights, sentences on what is assumed or not
counted, and how certain that is (`counting.towers`). `known` lists the model types; the other modules each hold the
towers of one lineage: functions of a tower's keys, where its weights go, and the language model's width, to the tower's
own width. All raise InputError, which names the key.

Sources: the modelling code of transformers for the tensors. vLLM splits the matrices of towers that it builds out of
its own layers; those of Gemma 4 and of Qwen2-Audio it takes whole from transformers, on every rank.
"""
