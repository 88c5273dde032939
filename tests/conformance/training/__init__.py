"""Holds public training programs in their shape and in small: each is a generator that yields the loss of every step.

An example: `losses = nano_gpt(wrap)` builds nanoGPT's model, passes it through `wrap` (`rekindle.Module`, or what gives it
back for eager) and trains one step at each `next(losses)`. All sizes are small, all data is drawn from torch's generator.
"""

PROGRAMS = {
    "language": ("nano_gpt", "word_language_model", "bert_labels", "bert_problem_type", "bert_hidden_states", "lora", "whisper"),
    "vision": ("mnist", "resnet", "dcgan", "vae", "siamese", "vit_einops", "faster_rcnn"),
    "diffusion": ("diffusion",),
    "decisions": ("reinforce", "actor_critic", "lbfgs", "graph_attention", "lengths_and_a_branch"),
    "kept_values": ("mixture_of_experts", "bayes_by_backprop"),
    "frameworks": ("accelerate_loop", "mixed_precision", "lightning_inner", "lightning_whole"),
}  # the programs of each module of this folder
