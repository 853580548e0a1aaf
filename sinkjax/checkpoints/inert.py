"""Keys of a config.json that change neither weights nor forward, each group with its reason, and keys that do so at one value."""

from __future__ import annotations

from typing import Any

# fmt: off
REASONS: dict[str, tuple[str, ...]] = {
    "it names the file, its origin or the version that wrote it": (
        "_commit_hash", "_name_or_path", "_from_model_config", "architectures", "base_model_name_or_path", "finetuning_task",
        "is_composition", "is_llama_config", "license", "model_name", "name", "problem_type", "tokenizer_class", "tokenizer_name",
        "transformers_version", "transformers_weights", "trust_remote_code", "unsloth_fixed", "unsloth_version",
    ),
    "it names Python code to run in place of the library's, which computes the same model": ("auto_map", "custom_pipelines"),
    "it is a hint to another program about how to run or export the model": (
        "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal", "_experts_implementation",
        "_flash_attn_2_enabled", "attn_implementation", "cache_config", "cache_implementation", "compile_config",
        "disable_compile", "flash_attn", "inference_mode", "kv_cache_dtype", "low_memory", "neuron", "prefill_chunk_size",
        "return_dict", "return_legacy_cache", "tf_legacy_loss", "torchscript", "transformers.js_config", "use_cache",
        "use_flash_attention", "use_flash_attention_2", "use_flash_attn", "use_return_dict",
    ),
    "it is the number type of the saved weights, which the tensors state themselves": (
        "dtype", "torch_dtype", "use_bfloat16",
    ),
    "it acts in training only: dropout, initialisation, recomputation, auxiliary losses": (
        "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "classifier_dropout", "dropout", "embd_pdrop",
        "embedding_dropout", "gradient_checkpointing", "hidden_dropout", "hidden_dropout_prob", "ignore_index",
        "initializer_range", "output_router_logits", "resid_pdrop", "residual_dropout", "router_aux_loss_coef",
        "router_jitter_noise", "use_gradient_checkpointing",
    ),
    "it splits a product into parts that are added up again": ("chunk_size_feed_forward", "pretraining_tp"),
    "it chooses outputs of a library's call": ("output_attentions", "output_hidden_states", "output_past", "output_scores"),
    "it belongs to a head for classification or question answering, which a language model does not use": (
        "classifier_activation", "id2label", "label2id", "num_labels", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj",
    ),
    "it names special tokens or how a tokenizer pads and cuts": (
        "bos_token", "bos_token_id", "decoder_start_token_id", "eos_token", "eos_token_id", "mask_token_id", "model_max_length",
        "n_special", "pad_token", "pad_token_id", "padding_side", "predict_special_tokens", "prefix", "sep_token_id",
        "tokenizer_model_max_length", "tokenizer_padding_side", "unk_token_id",
    ),
    "it limits prompts in some program, beside max_position_embeddings": ("max_seq_len", "max_sequence_length"),
    "it is a default of text generation": (
        "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
        "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff",
        "exponential_decay_length_penalty", "force_words_ids", "forced_bos_token_id", "forced_decoder_ids",
        "forced_eos_token_id", "generation_config", "guidance_scale", "length_penalty", "max_length", "max_new_tokens",
        "max_time", "min_length", "min_new_tokens", "min_p", "no_repeat_ngram_size", "num_assistant_tokens", "num_beam_groups",
        "num_beams", "num_return_sequences", "penalty_alpha", "remove_invalid_values", "renormalize_logits",
        "repetition_penalty", "return_dict_in_generate", "sequence_bias", "stop_strings", "suppress_tokens",
        "task_specific_params", "temperature", "token_healing", "top_h", "top_k", "top_p", "typical_p", "watermarking_config",
    ),
    "without use_sliding_window it has no effect, and with it a family reads it": ("max_window_layers",),
}
# fmt: on
INERT = frozenset(key for keys in REASONS.values() for key in keys)

# Keys of other architectures -> the value that says that this one lacks the feature.
NEUTRAL: dict[str, Any] = {
    **dict.fromkeys(("rope_interleaved", "use_mrope", "is_decoder", "is_encoder_decoder", "add_cross_attention"), False),
    **dict.fromkeys(("alibi", "attention_bias", "lm_head_bias", "mlp_bias", "qk_layernorm", "use_qk_norm"), False),
    **dict.fromkeys(("tie_encoder_decoder", "use_sliding_window", "use_bidirectional_attention"), False),
    **dict.fromkeys(("num_experts", "num_local_experts", "num_nextn_predict_layers"), 0),
    **dict.fromkeys(("full_attn_mod", "interpolate_factor"), 1),
    "pruned_heads": {},
}
