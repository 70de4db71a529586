"""The known settings of evaluation programs, and what each of them names: the model, the task or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Names(Enum):
    """What a setting of an evaluation program names."""

    MODEL = "the model"
    TASK = "the task"
    NOTHING = "nothing"


class Setting(NamedTuple):
    """A setting of an evaluation program: what it names, and the reason.

    If the setting has one of the values in `usual`, it is left out of the name.
    """

    names: Names
    reason: str
    usual: tuple[object, ...] = ()


_REASONS: tuple[tuple[Names, str, str], ...] = (
    (Names.MODEL, "adds an adapter, a difference or a direction to the weights",
     "adapter_weights base_model delta delta_weights lora_local_path lora_path peft steer_path"),
    (Names.MODEL, "stores the weights with fewer bits",
     "autogptq bnb_4bit_compute_dtype bnb_4bit_quant_type bnb_4bit_use_double_quant gptqmodel load_in_4bit "
     "load_in_8bit quantised quantization quantization_config torchao_config"),
    (Names.MODEL, "selects another file or checkpoint of the weights",
     "ckpt_step gguf_file load_format subfolder"),
    (Names.MODEL, "changes the architecture",
     "hf_overrides json_model_override_args model_loading_kwargs rope_scaling rope_theta"),
    (Names.TASK, "selects the questions",
     "limit sample_id sample_shuffle samples"),
    (Names.TASK, "is another version of the questions or of their scoring",
     "version"),
    (Names.TASK, "selects the examples in the prompt, or the random numbers",
     "fewshot_seed num_fewshot_seeds numpy_seed random_seed seed torch_seed"),
    (Names.TASK, "changes the prompt",
     "add_bos_token add_special_tokens apply_chat_template assistant_prefill chat_template chat_template_args "
     "custom_prefix_token_id description_dict enable_thinking fewshot_as_multiturn "
     "multichoice_continuations_start_space override_chat_template pairwise_tokenization prefix_token_id "
     "system_instruction system_message system_prompt truncate truncate_prompt truncation truncation_side "
     "use_chat_template"),
    (Names.TASK, "changes what the model sees of images and sounds",
     "convert_img_format image_height image_max_side image_string image_token_id image_width interleave max_audios "
     "max_images max_pixels min_pixels modalities"),
    (Names.TASK, "changes how the answer is generated, or where it ends",
     "best_of block_size do_sample early_stopping effort eos_string extra_body fallback_models frequency_penalty "
     "gen_kwargs generate_params generation_size internal_tools kv_cache_dtype length_penalty logit_bias "
     "max_beam_width max_gen_toks max_new_tokens max_output_len max_tokens max_tokens_to_sample max_tool_output "
     "min_new_tokens min_p num_blocks num_choices parallel_tool_calls presence_penalty reasoning_effort "
     "reasoning_history reasoning_mode reasoning_summary reasoning_tokens repetition_penalty response_format "
     "response_schema stop_seqs stop_tokens temperature think_end_token top_k top_p verbosity"),
    (Names.TASK, "changes what an agent may do, or how its answers are scored",
     "approval cost_limit epochs epochs_reducer fail_on_refusal message_limit review sandbox score_on_error "
     "scorer_options sentinel solver time_limit token_limit token_limit_type turn_limit working_limit"),
    (Names.NOTHING, "is the name or the commit of the model, which stands in the name in another way",
     "deployment_id engine load model model_dtype model_id model_name model_num_parameters model_path model_revision "
     "model_sha path pretrained revision"),
    (Names.NOTHING, "says where the tokenizer is; each model has its own",
     "merge_file processor skip_tokenizer_init tokenizer tokenizer_backend tokenizer_call_args tokenizer_mode "
     "tokenizer_model tokenizer_path tokenizer_revision tokenizer_type use_fast use_fast_image_processor "
     "use_fast_tokenizer vocab_file"),
    (Names.NOTHING, "places the model on devices",
     "accelerator backend data_parallel_size device device_map device_map_option devices "
     "distributed_executor_backend dp_size execution_provider expert_model_parallel_size expert_parallel_size gpus "
     "model_parallel nccl_port num_nodes parallelize pipeline_model_parallel_size pipeline_parallel_size pp_size "
     "provider_options tensor_model_parallel_size tensor_parallel_size tp_degree tp_plan tp_size use_accelerate"),
    (Names.NOTHING, "changes memory or speed, not the answers",
     "batch_size batch_sizes cache_dir cache_implementation chunked_prefill_size compile continuous_batching "
     "cpu_offload_gb cuda_graph_max_bs disable_cuda_graph disable_custom_all_reduce disable_radix_cache "
     "enable_chunked_prefill enable_prefix_caching enforce_eager gpu_memory_utilization is_async logits_cache "
     "low_cpu_mem_usage max_batch_size max_cpu_memory max_lora_rank max_memory_per_gpu max_num_batched_tokens "
     "max_num_seqs mem_fraction_static micro_batch_size offload_folder swap_space use_cache"),
    (Names.NOTHING, "changes the rounding of the arithmetic",
     "attention_backend attn_implementation dtype flash_attention mixed_precision_dtype precision sampling_backend "
     "softmax_dtype torch_dtype use_flash_attention_2"),
    (Names.NOTHING, "is the longest prompt that the program accepts",
     "context_length max_input_len max_length max_model_len max_model_length seq_length"),
    (Names.NOTHING, "is about the server or the network",
     "adaptive_connections api_key api_max_retry api_retry_multiplier api_retry_sleep api_version attempt_timeout "
     "auth_token base_url batch ca_cert_path cache cache_prompt concurrent_requests endpoint_name endpoint_type "
     "env_vars extra_headers framework header headers hf_token image_url inference_server_address "
     "inference_server_auth instance_size instance_type max_concurrent max_connections max_retries namespace "
     "num_concurrent org_to_bill parallel_calls_count provider proxies region reuse_existing stream_idle_timeout "
     "timeout token use_auth_token vendor verify_certificate"),
    (Names.NOTHING, "is about what the program writes down, or how it continues after an error",
     "bootstrap_iters continue_on_fail delta_sha disable_log_stats fail_on_error hidden_states is_hf log_buffer "
     "log_images log_level log_model_api log_realtime log_samples log_shared logprobs max_dataset_memory max_samples "
     "max_sandboxes max_subprocesses max_tasks model_info no_cache notification peft_sha prompt_logprobs "
     "retry_on_error sandbox_cleanup sandbox_prebuilt score_display skip_special_tokens tokenized_requests "
     "top_logprobs trust_remote_code verbose write_out"),
)  # fmt: skip
_USUAL_VALUES: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(["autogptq", "bnb_4bit_use_double_quant", "gptqmodel", "load_in_4bit", "load_in_8bit"], (False,)),
    "add_special_tokens": (True,),  # lighteval writes its defaults
    "fewshot_seed": (1234,),  # lm-evaluation-harness writes its defaults
    "kv_cache_dtype": ("auto",),
    "load_format": ("auto", "safetensors", "pt", "npcache"),
    "num_fewshot_seeds": (0, 1),
    "numpy_seed": (1234,),
    "pairwise_tokenization": (False,),
    "random_seed": (0, 1234),
    "score_on_error": (False,),
    "seed": (1234,),
    "token_limit_type": ("all",),
    "torch_seed": (1234,),
    "truncate": (False,),
    "truncation": (False,),
}
SETTINGS: Mapping[str, Setting] = {
    name: Setting(names, reason, _USUAL_VALUES.get(name, ()))
    for names, reason, settings in _REASONS
    for name in settings.split()
}
"""The known settings of evaluation programs, by name. A setting that is not among them names the task."""
