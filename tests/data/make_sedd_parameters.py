#!/usr/bin/env python3
"""Writes sedd_parameters.json: parameter names and shapes of the original SEDD at the guide's size, in order, and the
initial values of a small one under a seed.

usage: make_sedd_parameters.py ORIGINAL > sedd_parameters.json
ORIGINAL is a checkout of https://github.com/louaaron/Score-Entropy-Discrete-Diffusion (0605786); needs torch 2.11.
sedd_absorb_loglinear.safetensors and sedd_uniform_geometric.safetensors hold what the same program computed in float32
on the CPU, with dropout 0 and random weights: x0, t, xt, sigma, dsigma, log_score, score_entropy, loss (the sum over a
sequence), weight.*, grad.* of the mean loss, and step_dsigma, staggered_score, analytic_probs, reverse_rate.
"""
import json
import sys
import types

import torch

SMALL = {"hidden_size": 24, "cond_dim": 16, "length": 8, "n_blocks": 2, "n_heads": 2}
FULL = {"hidden_size": 768, "cond_dim": 256, "length": 512, "n_blocks": 8, "n_heads": 12}
SEED = 7


def load_original(directory):
    """The model's class; what it imports but does not need here is replaced by nothing."""
    for name, members in {
        "einops": ["rearrange"],
        "flash_attn": [],
        "flash_attn.flash_attn_interface": ["flash_attn_varlen_qkvpacked_func"],
        "omegaconf": ["OmegaConf"],
    }.items():
        module = types.ModuleType(name)
        for member in members:
            setattr(module, member, None)
        sys.modules[name] = module
    hub = types.ModuleType("huggingface_hub")
    hub.PyTorchModelHubMixin = object
    sys.modules["huggingface_hub"] = hub
    sys.path.insert(0, directory)
    from model.transformer import SEDD

    return SEDD


def config_of(sizes):
    model = types.SimpleNamespace(**sizes, scale_by_sigma=True, dropout=0.1)
    return types.SimpleNamespace(tokens=36, graph=types.SimpleNamespace(type="absorb"), model=model)


def main():
    sedd = load_original(sys.argv[1])
    full = sedd(config_of(FULL))
    torch.manual_seed(SEED)
    small = sedd(config_of(SMALL))
    print(
        json.dumps(
            {
                "full_size": [[name, list(value.shape)] for name, value in full.named_parameters()],
                "buffers": [[name, list(value.shape)] for name, value in full.named_buffers()],
                "count": sum(value.numel() for value in full.parameters()),
                "seed": SEED,
                "small": SMALL,
                "initial": {
                    name: {"first": value.flatten()[0].item(), "sum": value.double().sum().item()}
                    for name, value in small.named_parameters()
                },
            },
            separators=(",", ":"),
        )
    )


if __name__ == "__main__":
    main()
