/* SPDX-License-Identifier: MIT */
/* Frozen values of the binary interface: enumerators, flag bits, and where each
 * member of a public struct lies (LP64). A line here changes only with the
 * library's major version; new members and values add lines. Structs may grow
 * at the end, so sizes are not frozen. */

#include "vrampool/cuda.h"
#include "vrampool/driver.h"
#include "vrampool/inspect.h"
#include "vrampool/knobs.h"
#include "vrampool/later.h"
#include "vrampool/optimizer.h"
#include "vrampool/sim.h"
#include "vrampool/status.h"
#include "vrampool/trace.h"
#include "vrampool/vrampool.h"

#define VALUE(name, value) _Static_assert((name) == (value), #name " has moved")
#define AT(type, member, offset) \
    _Static_assert(offsetof(type, member) == (offset), #type "." #member " has moved")
#define FOUR_BYTES(type) _Static_assert(sizeof(type) == 4, #type " is not 32 bits wide")

_Static_assert(sizeof(void *) == 8, "the offsets are those of LP64");
_Static_assert(sizeof(vrp_devptr) == 8 && sizeof(vrp_stream) == 8 && sizeof(vrp_scope) == 8,
               "handles have 64 bits");

FOUR_BYTES(vrp_status);
FOUR_BYTES(vrp_backing);
FOUR_BYTES(vrp_gap_rule);
FOUR_BYTES(vrp_tag);
FOUR_BYTES(vrp_suspend_target);
FOUR_BYTES(vrp_export_kind);
FOUR_BYTES(vrp_block_state);
FOUR_BYTES(vrp_knob);
FOUR_BYTES(vrp_optimizer_reason);
FOUR_BYTES(vrp_sim_completion);
FOUR_BYTES(vrp_sim_capture_mode);
FOUR_BYTES(vrp_sim_call);
FOUR_BYTES(vrp_trace_kind);
FOUR_BYTES(vrp_trace_marker);

VALUE(VRP_OK, 0);
VALUE(VRP_INVALID_ARGUMENT, 1);
VALUE(VRP_INVALID_SIZE, 2);
VALUE(VRP_INVALID_ALIGNMENT, 3);
VALUE(VRP_NOT_OWNED, 4);
VALUE(VRP_INTERIOR_POINTER, 5);
VALUE(VRP_ALREADY_FREED, 6);
VALUE(VRP_BUSY, 7);
VALUE(VRP_OUT_OF_DEVICE_MEMORY, 8);
VALUE(VRP_OUT_OF_HOST_MEMORY, 9);
VALUE(VRP_LIMIT_REACHED, 10);
VALUE(VRP_NOT_SUPPORTED, 11);
VALUE(VRP_UNAVAILABLE, 12);
VALUE(VRP_DEVICE_LOST, 13);
VALUE(VRP_SHUT_DOWN, 14);
VALUE(VRP_AFTER_FORK, 15);
VALUE(VRP_CORRUPTED, 16);
VALUE(VRP_INTERNAL, 17);

VALUE(VRP_KNOB_GAP_RULE, 0);
VALUE(VRP_KNOB_GAP_LIMIT_BYTES, 1);
VALUE(VRP_KNOB_LIMIT_BYTES, 2);
VALUE(VRP_KNOB_CACHE_BYTES, 3);
VALUE(VRP_KNOB_CACHE_BLOCK_BYTES, 4);
VALUE(VRP_KNOB_DEVICE_WAITS, 5);
VALUE(VRP_KNOB_SPLIT_LIMIT_BYTES, 6);
VALUE(VRP_KNOB_SEGMENT_BYTES, 7);
VALUE(VRP_KNOB_EXTENT_SMALL_BYTES, 8);
VALUE(VRP_KNOB_EXTENT_LARGE_BYTES, 9);
VALUE(VRP_KNOB_EXTENT_WEIGHTS_BYTES, 10);
VALUE(VRP_KNOB_EXTENT_LOADING_BYTES, 11);
VALUE(VRP_KNOB_IDLE_AGE, 12);
VALUE(VRP_KNOB_RECLAIMER, 14);
VALUE(VRP_KNOB_TRIM_BUDGET_NS, 15);
VALUE(VRP_KNOB_EXTENT_AHEAD_BYTES, 16);

VALUE(VRP_SIM_CALL_DEVICE_INFO, 0);
VALUE(VRP_SIM_CALL_MEM_INFO, 1);
VALUE(VRP_SIM_CALL_EVENT_CREATE, 2);
VALUE(VRP_SIM_CALL_EVENT_DESTROY, 3);
VALUE(VRP_SIM_CALL_EVENT_RECORD, 4);
VALUE(VRP_SIM_CALL_EVENT_QUERY, 5);
VALUE(VRP_SIM_CALL_EVENT_SYNCHRONIZE, 6);
VALUE(VRP_SIM_CALL_SYNCHRONIZE, 7);
VALUE(VRP_SIM_CALL_MEM_ALLOC, 8);
VALUE(VRP_SIM_CALL_MEM_FREE, 9);
VALUE(VRP_SIM_CALL_ADDRESS_RESERVE, 10);
VALUE(VRP_SIM_CALL_ADDRESS_FREE, 11);
VALUE(VRP_SIM_CALL_HANDLE_CREATE, 12);
VALUE(VRP_SIM_CALL_HANDLE_RELEASE, 13);
VALUE(VRP_SIM_CALL_MAP, 14);
VALUE(VRP_SIM_CALL_SET_ACCESS, 15);
VALUE(VRP_SIM_CALL_UNMAP, 16);
VALUE(VRP_SIM_CALL_STREAM_WAIT_EVENT, 17);
VALUE(VRP_SIM_CALL_CONTEXT_RECORD, 18);
VALUE(VRP_SIM_CALL_STREAM_ID, 19);
VALUE(VRP_SIM_CALL_STREAM_IS_CAPTURING, 20);
VALUE(VRP_SIM_CALL_COPY_ASYNC, 21);

VALUE(VRP_BACKING_AUTO, 0);
VALUE(VRP_BACKING_VMM, 1);
VALUE(VRP_BACKING_MALLOC, 2);

VALUE(VRP_GAP_RULE_DEFAULT, 0);
VALUE(VRP_GAP_RULE_OFF, 1);
VALUE(VRP_GAP_RULE_HIGH_WATER, 2);
VALUE(VRP_GAP_RULE_LIMIT, 3);

VALUE(VRP_TAG_OTHER, 0);
VALUE(VRP_TAG_WEIGHTS, 1);
VALUE(VRP_TAG_KV, 2);
VALUE(VRP_TAG_ACTIVATION, 3);
VALUE(VRP_TAG_VISION, 4);
VALUE(VRP_TAG_WORKSPACE, 5);

VALUE(VRP_SUSPEND_POOL, 0);
VALUE(VRP_SUSPEND_TAG, 1);
VALUE(VRP_SUSPEND_SCOPE, 2);

VALUE(VRP_EXPORT_POSIX_FD, 0);
VALUE(VRP_EXPORT_IPC, 1);
VALUE(VRP_EXPORT_DMA_BUF, 2);

VALUE(VRP_BLOCK_LIVE, 0);
VALUE(VRP_BLOCK_FREE, 1);
VALUE(VRP_BLOCK_STREAM, 2);
VALUE(VRP_BLOCK_PENDING, 3);
VALUE(VRP_BLOCK_CACHED, 4);
VALUE(VRP_BLOCK_SLAB, 5);

VALUE(VRP_REASON_NOT_DUE, 0);
VALUE(VRP_REASON_BELOW_THRESHOLD, 1);
VALUE(VRP_REASON_ABOVE_THRESHOLD, 2);
VALUE(VRP_REASON_IDLE, 3);
VALUE(VRP_REASON_PRESSURE, 4);
VALUE(VRP_REASON_KEPT, 5);
VALUE(VRP_REASON_NOT_REARMED, 6);
VALUE(VRP_REASON_NOTHING_IDLE, 7);

VALUE(VRP_SIM_IMMEDIATE, 0);
VALUE(VRP_SIM_MANUAL, 1);
VALUE(VRP_SIM_LAG, 2);
VALUE(VRP_SIM_CLOCK, 3);

VALUE(VRP_SIM_CAPTURE_GLOBAL, 0);
VALUE(VRP_SIM_CAPTURE_THREAD_LOCAL, 1);
VALUE(VRP_SIM_CAPTURE_RELAXED, 2);

VALUE(VRP_TRACE_ALLOC, 0);
VALUE(VRP_TRACE_FREE, 1);
VALUE(VRP_TRACE_SAFE, 2);
VALUE(VRP_TRACE_MARKER, 3);

VALUE(VRP_MARKER_OTHER, 0);
VALUE(VRP_MARKER_LOAD, 1);
VALUE(VRP_MARKER_TURN, 2);
VALUE(VRP_MARKER_CLEAR, 3);
VALUE(VRP_MARKER_STEP, 4);
VALUE(VRP_MARKER_REQUEST, 5);

VALUE(VRP_CAP_VMM, 1u << 0);
VALUE(VRP_CAP_MALLOC, 1u << 1);
VALUE(VRP_CAP_CONTEXT_RECORD, 1u << 2);
VALUE(VRP_CAP_STREAM_ID, 1u << 3);
VALUE(VRP_CAP_CAPTURE, 1u << 4);
VALUE(VRP_CAP_COPY, 1u << 5);
VALUE(VRP_CAP_DEVICE_WAIT, 1u << 6);
VALUE(VRP_CAP_EXPORT_FD, 1u << 7);
VALUE(VRP_CAP_EXPORT_DMA_BUF, 1u << 8);
VALUE(VRP_CAP_EXPORT_IPC, 1u << 9);
VALUE(VRP_ALLOC_EXPORTABLE, 1u << 2);
VALUE(VRP_STREAM_ANY, ~(vrp_stream)1);
VALUE(VRP_SIM_CALL_EXPORT, 22);
AT(vrp_sim_export, handle, 8);
AT(vrp_sim_export, bytes, 24);
VALUE(VRP_CAP_ASYNC_DEVICE, 1u << 10);
VALUE(VRP_STREAMS_UNTRACKED, 1u << 0);
VALUE(VRP_NO_DEVICE_WAITS, 1u << 1);
VALUE(VRP_NO_RECLAIMER, 1u << 2);
VALUE(VRP_DESTROY_FORCE, 1u << 0);
VALUE(VRP_ALLOC_NO_WAIT, 1u << 0);
VALUE(VRP_ALLOC_NO_OOM_CALL, 1u << 1);
VALUE(VRP_TRIM_WAIT, 1u << 0);
VALUE(VRP_TRIM_KEEP_CACHES, 1u << 1);
VALUE(VRP_SUSPEND_DROP, 1u << 0);
VALUE(VRP_OPTIMIZER_IDLE, 1u << 0);
VALUE(VRP_OPTIMIZER_KEEP, 1u << 1);
VALUE(VRP_OPTIMIZER_HYSTERESIS, 1u << 2);
VALUE(VRP_OPTIMIZER_PRESSURE, 1u << 3);
VALUE(VRP_SIM_NO_DETECTOR, 1u << 0);
VALUE(VRP_SIM_NO_VMM, 1u << 1);
VALUE(VRP_SIM_NO_MALLOC, 1u << 2);
VALUE(VRP_SIM_NO_CONTEXT_RECORD, 1u << 3);
VALUE(VRP_SIM_NO_HOST_MEMORY, 1u << 4);
VALUE(VRP_SIM_STREAM_NON_BLOCKING, 1u << 0);

VALUE(VRP_STREAM_LEGACY, 0);
VALUE(VRP_STREAM_PER_THREAD, 2);
VALUE(VRP_STREAM_OF_ALLOC, UINT64_MAX);
VALUE(VRP_ALIGNMENT_MIN, 512);
VALUE(VRP_ALIGNMENT_MAX, 2097152);
VALUE(VRP_OOM_ATTEMPTS, 4);

AT(vrp_error_detail, struct_size, 0);
AT(vrp_error_detail, status, 4);
AT(vrp_error_detail, native_code, 8);
AT(vrp_error_detail, requested_bytes, 16);
AT(vrp_error_detail, address, 24);
AT(vrp_error_detail, live_count, 32);
AT(vrp_error_detail, message, 40);

AT(vrp_device_info, struct_size, 0);
AT(vrp_device_info, caps, 4);
AT(vrp_device_info, total_bytes, 8);
AT(vrp_device_info, granularity_bytes, 16);
AT(vrp_device_info, address_bytes, 24);
AT(vrp_device_info, name, 32);

AT(vrp_driver_ops, struct_size, 0);
AT(vrp_driver_ops, reserved, 4);
AT(vrp_driver_ops, device_info, 8);
AT(vrp_driver_ops, mem_info, 16);
AT(vrp_driver_ops, event_create, 24);
AT(vrp_driver_ops, event_destroy, 32);
AT(vrp_driver_ops, event_record, 40);
AT(vrp_driver_ops, event_query, 48);
AT(vrp_driver_ops, event_synchronize, 56);
AT(vrp_driver_ops, synchronize, 64);
AT(vrp_driver_ops, mem_alloc, 72);
AT(vrp_driver_ops, mem_free, 80);
AT(vrp_driver_ops, address_reserve, 88);
AT(vrp_driver_ops, address_free, 96);
AT(vrp_driver_ops, handle_create, 104);
AT(vrp_driver_ops, handle_release, 112);
AT(vrp_driver_ops, map, 120);
AT(vrp_driver_ops, set_access, 128);
AT(vrp_driver_ops, unmap, 136);
AT(vrp_driver_ops, stream_wait_event, 144);
AT(vrp_driver_ops, context_record, 152);
AT(vrp_driver_ops, stream_id, 160);
AT(vrp_driver_ops, stream_is_capturing, 168);
AT(vrp_driver_ops, copy_async, 176);
AT(vrp_driver_ops, last_native_error, 184);
AT(vrp_driver_ops, destroy, 192);
AT(vrp_driver_ops, handle_export, 200);
AT(vrp_driver_ops, range_export, 208);
AT(vrp_driver_ops, ipc_export, 216);

AT(vrp_oom_report, struct_size, 0);
AT(vrp_oom_report, attempts, 4);
AT(vrp_oom_report, requested_bytes, 8);
AT(vrp_oom_report, device_free_bytes, 16);
AT(vrp_oom_report, device_total_bytes, 24);
AT(vrp_oom_report, reserved_bytes, 32);
AT(vrp_oom_report, allocated_bytes, 40);
AT(vrp_oom_report, limit_bytes, 48);
AT(vrp_oom_report, largest_free_bytes, 56);
AT(vrp_oom_report, idle_bytes, 64);
AT(vrp_oom_report, cached_bytes, 72);
AT(vrp_oom_report, pinned_bytes, 80);
AT(vrp_oom_report, pending_bytes, 88);
AT(vrp_oom_report, slack_bytes, 96);
AT(vrp_oom_report, pinning_blocks, 104);

AT(vrp_pool_config, struct_size, 0);
AT(vrp_pool_config, flags, 4);
AT(vrp_pool_config, backing, 8);
AT(vrp_pool_config, gap_rule, 12);
AT(vrp_pool_config, gap_limit_bytes, 16);
AT(vrp_pool_config, limit_bytes, 24);
AT(vrp_pool_config, initial_bytes, 32);
AT(vrp_pool_config, arena_bytes, 40);
AT(vrp_pool_config, oom_fn, 48);
AT(vrp_pool_config, oom_user, 56);
AT(vrp_pool_config, host_alloc, 64);
AT(vrp_pool_config, host_free, 72);
AT(vrp_pool_config, host_user, 80);

AT(vrp_alloc_info, struct_size, 0);
AT(vrp_alloc_info, flags, 4);
AT(vrp_alloc_info, bytes, 8);
AT(vrp_alloc_info, alignment, 16);
AT(vrp_alloc_info, stream, 24);
AT(vrp_alloc_info, tag, 32);
AT(vrp_alloc_info, reserved, 36);
AT(vrp_alloc_info, scope, 40);

AT(vrp_trim_result, struct_size, 0);
AT(vrp_trim_result, extents_released, 4);
AT(vrp_trim_result, released_bytes, 8);
AT(vrp_trim_result, pending_bytes, 16);
AT(vrp_trim_result, pinned_bytes, 24);
AT(vrp_trim_result, reserved_bytes, 32);
AT(vrp_trim_result, stalled_ns, 40);

AT(vrp_counter, current, 0);
AT(vrp_counter, peak, 8);
AT(vrp_counter, total, 16);

AT(vrp_stats, struct_size, 0);
AT(vrp_stats, backing, 4);
AT(vrp_stats, requested_bytes, 8);
AT(vrp_stats, allocated_bytes, 32);
AT(vrp_stats, reserved_bytes, 56);
AT(vrp_stats, blocks, 80);
AT(vrp_stats, extents, 104);
AT(vrp_stats, cached_bytes, 128);
AT(vrp_stats, failures, 136);
AT(vrp_stats, bad_frees, 144);
AT(vrp_stats, trims, 152);
AT(vrp_stats, trimmed_bytes, 160);
AT(vrp_stats, cross_stream_waits, 168);
AT(vrp_stats, host_waits, 176);
AT(vrp_stats, gap_limit_missed_bytes, 184);
AT(vrp_stats, exported_bytes, 192);
AT(vrp_stats, suspended_bytes, 200);
AT(vrp_stats, host_bytes, 208);
AT(vrp_stats, extents_unmapped, 216);
AT(vrp_stats, extents_created, 224);
AT(vrp_stats, events_recorded, 232);
AT(vrp_stats, graph_bytes, 240);
AT(vrp_stats, reclaimed_bytes, 248);

AT(vrp_gap, struct_size, 0);
AT(vrp_gap, reserved, 4);
AT(vrp_gap, cached_bytes, 8);
AT(vrp_gap, pending_bytes, 16);
AT(vrp_gap, idle_bytes, 24);
AT(vrp_gap, pinned_bytes, 32);
AT(vrp_gap, slack_bytes, 40);

AT(vrp_group_stats, struct_size, 0);
AT(vrp_group_stats, reserved, 4);
AT(vrp_group_stats, requested_bytes, 8);
AT(vrp_group_stats, allocated_bytes, 32);
AT(vrp_group_stats, blocks, 56);
AT(vrp_group_stats, budget_bytes, 64);

AT(vrp_growable_info, struct_size, 0);
AT(vrp_growable_info, tag, 4);
AT(vrp_growable_info, max_bytes, 8);
AT(vrp_growable_info, stream, 16);
AT(vrp_growable_info, scope, 24);

AT(vrp_export_info, struct_size, 0);
AT(vrp_export_info, kind, 4);
AT(vrp_export_info, fd, 8);
AT(vrp_export_info, offset_bytes, 16);
AT(vrp_export_info, bytes, 24);
AT(vrp_export_info, ipc_handle, 32);

AT(vrp_block_info, struct_size, 0);
AT(vrp_block_info, state, 4);
AT(vrp_block_info, base, 8);
AT(vrp_block_info, bytes, 16);
AT(vrp_block_info, requested_bytes, 24);
AT(vrp_block_info, stream, 32);
AT(vrp_block_info, scope, 40);
AT(vrp_block_info, tag, 48);
AT(vrp_block_info, is_slot, 52);

AT(vrp_extent_info, struct_size, 0);
AT(vrp_extent_info, arena, 4);
AT(vrp_extent_info, base, 8);
AT(vrp_extent_info, bytes, 16);
AT(vrp_extent_info, live_bytes, 24);
AT(vrp_extent_info, pending, 32);
AT(vrp_extent_info, in_transit, 36);

AT(vrp_walk_fns, struct_size, 0);
AT(vrp_walk_fns, reserved, 4);
AT(vrp_walk_fns, extent, 8);
AT(vrp_walk_fns, block, 16);

AT(vrp_knob_bounds, struct_size, 0);
AT(vrp_knob_bounds, reserved, 4);
AT(vrp_knob_bounds, low, 8);
AT(vrp_knob_bounds, high, 16);
AT(vrp_knob_bounds, preset, 24);

AT(vrp_optimizer_config, struct_size, 0);
AT(vrp_optimizer_config, options, 4);
AT(vrp_optimizer_config, threshold_bytes, 8);
AT(vrp_optimizer_config, interval, 16);
AT(vrp_optimizer_config, keep_turns, 20);
AT(vrp_optimizer_config, rearm_bytes, 24);
AT(vrp_optimizer_config, cooldown_steps, 32);
AT(vrp_optimizer_config, reserved, 36);
AT(vrp_optimizer_config, pressure_free_bytes, 40);

AT(vrp_optimizer_report, struct_size, 0);
AT(vrp_optimizer_report, reason, 4);
AT(vrp_optimizer_report, looked, 8);
AT(vrp_optimizer_report, acted, 12);
AT(vrp_optimizer_report, step, 16);
AT(vrp_optimizer_report, gap_bytes, 24);
AT(vrp_optimizer_report, gap_after_bytes, 32);
AT(vrp_optimizer_report, threshold_bytes, 40);
AT(vrp_optimizer_report, keep_bytes, 48);
AT(vrp_optimizer_report, released_bytes, 56);
AT(vrp_optimizer_report, pending_bytes, 64);
AT(vrp_optimizer_report, device_free_bytes, 72);
AT(vrp_optimizer_report, cost_ns, 80);

AT(vrp_optimizer_stats, struct_size, 0);
AT(vrp_optimizer_stats, reserved, 4);
AT(vrp_optimizer_stats, steps, 8);
AT(vrp_optimizer_stats, looks, 16);
AT(vrp_optimizer_stats, acts, 24);
AT(vrp_optimizer_stats, released_bytes, 32);
AT(vrp_optimizer_stats, largest_gap_after_look_bytes, 40);
AT(vrp_optimizer_stats, cost_ns, 48);

AT(vrp_sim_config, struct_size, 0);
AT(vrp_sim_config, flags, 4);
AT(vrp_sim_config, device_count, 8);
AT(vrp_sim_config, completion, 12);
AT(vrp_sim_config, device_bytes, 16);
AT(vrp_sim_config, granularity_bytes, 24);
AT(vrp_sim_config, window_bytes, 32);
AT(vrp_sim_config, lag_ticks, 40);

AT(vrp_sim_stats, struct_size, 0);
AT(vrp_sim_stats, ordinal, 4);
AT(vrp_sim_stats, used_bytes, 8);
AT(vrp_sim_stats, peak_used_bytes, 16);
AT(vrp_sim_stats, other_bytes, 24);
AT(vrp_sim_stats, allocations, 32);
AT(vrp_sim_stats, handles, 40);
AT(vrp_sim_stats, mappings, 48);
AT(vrp_sim_stats, ranges, 56);
AT(vrp_sim_stats, events, 64);
AT(vrp_sim_stats, misuses, 72);
AT(vrp_sim_stats, host_blocks, 80);
AT(vrp_sim_stats, capture_breaks, 88);

AT(vrp_cuda_config, struct_size, 0);
AT(vrp_cuda_config, ordinal, 4);
AT(vrp_cuda_config, exportable, 8);
AT(vrp_cuda_config, reserved, 12);
AT(vrp_cuda_config, peer_mask, 16);

AT(vrp_trace_event, kind, 0);
AT(vrp_trace_event, marker, 1);
AT(vrp_trace_event, failed, 2);
AT(vrp_trace_event, stream, 4);
AT(vrp_trace_event, id, 8);
AT(vrp_trace_event, bytes, 16);
AT(vrp_trace_event, time_us, 24);
