"""Supervised fine-tuning data: rows, prompts and chats, answer masks, packing, batches. Start reading at `spec`, then `data`."""
