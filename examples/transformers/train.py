"""A script for Hugging Face Transformers with checkpoints. The Trainer reports its progress to `oarlock launch` by itself:

    oarlock launch --nproc 2 -- python3 examples/transformers/train.py --max_steps 200
"""
import os

import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, LlamaConfig, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint


def main():
    parser = HfArgumentParser(TrainingArguments)
    parser.set_defaults(output_dir=os.environ.get("OARLOCK_CHECKPOINT_DIR", "checkpoints"), max_steps=2000, logging_steps=10,
                        save_steps=50, save_total_limit=2, per_device_train_batch_size=8, disable_tqdm=True,
                        use_cpu=not torch.accelerator.is_available())  # without it, each rank trains alone on a CPU
    (arguments,) = parser.parse_args_into_dataclasses()

    # A random model and random data in the place of from_pretrained() and load_dataset().
    set_seed(arguments.seed)
    model = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                                         num_attention_heads=2, max_position_embeddings=64))
    dataset = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(64, (1024, 32))]

    trainer = Trainer(model, arguments, train_dataset=dataset)
    os.makedirs(arguments.output_dir, exist_ok=True)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))
    trainer.save_model()


if __name__ == "__main__":
    main()
