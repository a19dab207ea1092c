"""Every name of SGLang's that the plugin reads or wraps: the one list, checked against its wheels.

``where`` is a module under ``sglang.srt`` and what is in it; alternatives are separated by ``|``.
``gives`` is what is lost without it; empty where nothing can be said without it.
"""

from typing import NamedTuple


class Name(NamedTuple):
    """A name that the plugin relies on."""

    where: str
    gives: str = ""


_PREFILL = "disaggregation.prefill:SchedulerDisaggregationPrefillMixin"
_MANAGERS = "disaggregation.common.conn:CommonKVManager"
_NIXL = "disaggregation.nixl.conn"
_MOONCAKE = "disaggregation.mooncake.conn"

NAMES = (
    Name("managers.scheduler:Scheduler.__init__"),
    Name("managers.scheduler:Scheduler.disaggregation_mode"),
    Name("managers.scheduler:Scheduler.disagg_prefill_inflight_queue"),
    Name("managers.scheduler:Scheduler.disagg_prefill_bootstrap_queue"),
    Name("managers.scheduler:Scheduler.disagg_decode_prealloc_queue"),
    Name("disaggregation.prefill:PrefillBootstrapQueue.kv_manager"),
    Name(f"{_PREFILL}.process_disagg_prefill_inflight_queue"),
    Name(f"{_PREFILL}.send_kv_chunk"),
    Name("disaggregation.decode:SchedulerDisaggregationDecodeMixin.process_decode_queue"),
    Name("disaggregation.decode:DecodePreallocQueue.kv_manager"),
    Name("disaggregation.decode:DecodePreallocQueue.queue"),
    Name("disaggregation.decode:DecodeTransferQueue.queue"),
    Name("disaggregation.decode:DecodeRequest.req"),
    Name("disaggregation.decode:DecodeRequest.kv_receiver", "one trace at both ends"),
    Name("disaggregation.common.conn:CommonKVReceiver.bootstrap_infos"
         f"|{_MOONCAKE}:MooncakeKVReceiver.bootstrap_infos", "one trace at both ends"),
    Name("managers.scheduler:Scheduler.disagg_decode_transfer_queue"),
    Name("managers.scheduler:Scheduler.init_disaggregation", "a change of roles"),
    Name("managers.schedule_batch:Req.rid"),
    Name("managers.schedule_batch:Req.bootstrap_room"),
    Name("managers.schedule_batch:Req.bootstrap_host", "warm-ups by their host"),
    Name("managers.schedule_batch:Req.disagg_kv_sender"),
    Name("managers.schedule_batch:Req.finished_reason"),
    Name("managers.schedule_batch:Req.pending_bootstrap", "parked rooms"),
    Name("managers.schedule_batch:FINISH_ABORT.message"),
    Name("disaggregation.utils:FAKE_BOOTSTRAP_HOST", "warm-ups by their host"),
    Name(f"{_MANAGERS}.kv_args"),
    Name(f"{_MANAGERS}.attn_tp_rank", "ranks"),
    Name(f"{_MANAGERS}.attn_cp_rank", "ranks"),
    Name(f"{_MANAGERS}.attn_dp_rank", "ranks"),
    Name(f"{_MANAGERS}.system_dp_rank", "ranks"),
    Name(f"{_MANAGERS}.pp_rank", "ranks"),
    Name(f"{_MANAGERS}.is_dummy_cp_rank", "dummy ranks"),
    Name(f"{_MANAGERS}.kv_item_lens_sum|disaggregation.base.conn:KVArgs.kv_item_lens"),
    Name(f"{_MANAGERS}._kv_replica_factor", "copies in the expected bytes"),
    Name(f"{_MANAGERS}.local_ip|{_NIXL}:NixlKVManager.local_ip", "the endpoint"),
    Name(f"{_MANAGERS}.rank_port", "the endpoint"),
    Name(f"{_MANAGERS}.transfer_infos|{_NIXL}:NixlKVManager.transfer_infos", "peers"),
    Name("disaggregation.common.conn:CommonKVSender.num_kv_indices"
         f"|{_NIXL}:NixlKVSender.num_kv_indices", "expected bytes"),
    Name("disaggregation.common.conn:CommonKVSender.conclude_state"
         f"|{_MOONCAKE}:MooncakeKVSender.conclude_state", "which rank is stuck"),
    Name(f"{_MANAGERS}.attn_tp_size", "which rank is stuck"),
    Name(f"{_MANAGERS}.attn_cp_size", "which rank is stuck"),
    Name(f"{_MANAGERS}.pp_size", "which rank is stuck"),
    Name("managers.scheduler:Scheduler.token_to_kv_pool_allocator", "free memory"),
    Name("managers.scheduler:Scheduler.tree_cache", "free memory"),
    Name("managers.scheduler:Scheduler.max_total_num_tokens", "free memory"),
    Name("managers.scheduler:Scheduler.req_to_metadata_buffer_idx_allocator", "free slots"),
    Name("disaggregation.utils:ReqToMetadataIdxAllocator.available_size", "free slots"),
    Name("disaggregation.utils:ReqToMetadataIdxAllocator.size", "free slots"),
    Name("disaggregation.fake.conn:FakeKVSender"),
    *(
        Name(f"{_MANAGERS}.{name}", "failing rooms")
        for name in ("conclude_failure", "failure_records", "failure_lock", "update_status",
                     "send_kv_status_message")
    ),
    Name(f"{_MANAGERS}.deferred_bootstrap", "statuses that are told as they are set"),
    Name("disaggregation.common.utils:TransferInfo.endpoint"
         f"|{_NIXL}:TransferInfo.endpoint", "telling far ends"),
    Name("disaggregation.common.utils:TransferInfo.dst_port"
         f"|{_NIXL}:TransferInfo.dst_port", "telling far ends"),
    Name(f"{_NIXL}:TransferInfo.agent_name", "peers"),
    Name(f"{_NIXL}:TransferInfo.is_dummy", "dummy peers"),
    Name(f"{_NIXL}:NixlKVManager.agent"),
    Name(f"{_NIXL}:NixlKVManager.transfer_queues", "which thread serves which room (NIXL)"),
    Name(f"{_MOONCAKE}:TransferInfo.mooncake_session_id", "peers"),
    Name(f"{_MOONCAKE}:TransferInfo.is_dummy", "dummy peers"),
    Name(f"{_MOONCAKE}:MooncakeKVManager.engine"),
    Name(f"{_MOONCAKE}:MooncakeKVManager.get_session_id", "the session"),
    Name(f"{_MOONCAKE}:MooncakeKVManager.transfer_queues"),
    Name(f"{_MOONCAKE}:MooncakeKVManager.enable_custom_mem_pool", "calls of a pool's threads"),
    Name(f"{_MANAGERS}.request_status|{_NIXL}:NixlKVManager.request_status", "failed chunks"),
    Name("disaggregation.common.utils:FastQueue.get"),
    Name("disaggregation.common.utils:FastQueue.put"),
    Name("disaggregation.common.utils:TransferKVChunk.room"
         f"|{_MOONCAKE}:TransferKVChunk.room"),
    Name("disaggregation.common.utils:TransferKVChunk.prefill_kv_indices"
         f"|{_MOONCAKE}:TransferKVChunk.prefill_kv_indices"),
)
