"""What becomes of each option of fio 3.33 that has no key of its own in an inventory: harmless, told, or refused. Tables only.

HARMLESS  nothing is different here, whatever its value
TOLD      the I/O is the same, but something around it is not: the run says so, line by line
REFUSED   the I/O would be another one: the run is refused, with the way out where there is one
OTHERS    known to fio and none of the above: refused, too
"""

from __future__ import annotations

from collections.abc import Mapping

ALIASES: Mapping[str, str] = {
    "readwrite": "rw", "blocksize": "bs", "timeout": "runtime", "iomem": "mem", "ratemin": "rate_min", "rate_iops_max": "rate_iops",
    "blocksize_range": "bsrange", "blocksize_unaligned": "bs_unaligned", "blockalign": "ba", "wait_for_previous": "stonewall",
    "iodepth_batch_submit": "iodepth_batch", "file_size": "filesize", "fsync_data": "fdatasync", "io_limit": "io_size",
    "start_delay": "startdelay",
}  # fmt: skip

HARMLESS = frozenset({
    "name", "description", "thread", "group_reporting", "new_group", "stonewall", "stats", "randrepeat", "allrandrepeat",
    "norandommap", "refill_buffers", "scramble_buffers", "fallocate", "create_serialize", "create_fsync", "create_on_open", "overwrite",
    "unlink", "unlink_each_loop", "allow_file_create", "fixedbufs", "registerfiles", "disk_util", "openfiles", "file_service_type",
    "unit_base", "significant_figures", "error_dump", "gtod_cpu", "random_generator", "fadvise_hint", "userspace_reap", "softrandommap",
    "time_based",
})  # fmt: skip

_LOGS = "intervals and latencies are kept in the run folder instead"
_PERCENTILES = "percentiles are made from buckets, of total latency"
_FILES = "files are made under the targets of the inventory, one a job"
TOLD: Mapping[str, str] = {
    **dict.fromkeys(("filename", "directory", "filename_format", "unique_filename", "opendir"), _FILES),
    **dict.fromkeys((
        "write_bw_log", "write_lat_log", "write_iops_log", "write_hist_log", "log_avg_msec", "log_hist_msec", "log_hist_coarseness",
        "log_max_value", "log_offset", "log_prio", "log_compression", "log_compression_cpus", "log_store_compressed", "log_unix_epoch",
        "log_alternate_epoch", "log_alternate_epoch_clock_id", "log_entries", "per_job_logs", "bwavgtime", "iopsavgtime",
    ), _LOGS),
    **dict.fromkeys((
        "clat_percentiles", "lat_percentiles", "slat_percentiles", "percentile_list", "disable_lat", "disable_clat", "disable_slat",
        "block_error_percentiles", "unified_rw_reporting", "gtod_reduce",
    ), _PERCENTILES),
    **dict.fromkeys(("iodepth_batch", "iodepth_batch_complete", "iodepth_batch_complete_min", "iodepth_batch_complete_max", "iodepth_low"),
        "calyx refills by refill: each or batch, and the baseline is given no batches either"),
    **dict.fromkeys(("exitall", "exit_what", "exitall_on_error"), "a round ends when all its guests have ended"),
    **dict.fromkeys(("continue_on_error", "ignore_error"), "an I/O that fails fails its round, and is named"),
    **dict.fromkeys(("loops", "io_size", "number_ios"), "workloads are time based: they end with runtime"),
    "startdelay": "all guests of a round start at one line",
    "clocksource": "the clock is chosen by what the kernel trusts",
    "create_only": "a run lays out its files and then measures",
    "ioscheduler": "the scheduler of the device is left alone, and shown among the facts",
    "sqthread_poll_cpu": "the poller is placed away from the submitting threads",
    "io_submit_mode": "calyx submits from the thread of the job",
}  # fmt: skip

_VERIFY = "verify: crc32c checks every block that is read back; it has no settings"
_STEADY = "a workload runs for its runtime"
_TARGETS = "files are made and filled under the targets of the inventory"
REFUSED: Mapping[str, str] = {
    "zero_buffers": "zeros are compressed or deduplicated by layers below, so the figures would be those of a cache",
    **dict.fromkeys(("buffer_pattern", "dedupe_mode", "dedupe_global", "buffer_compress_chunk"),
        "written data is random, with buffer_compress_percentage and dedupe_percentage to change that"),
    **dict.fromkeys(("bsrange", "bs_unaligned", "ba"), "sizes are written out by bssplit, and aligned to the smallest"),
    **dict.fromkeys(("do_verify", "verify_async", "verify_async_cpus", "verify_backlog", "verify_backlog_batch", "verify_dump",
        "verify_fatal", "verify_interval", "verify_offset", "verify_only", "verify_pattern", "verify_state_load", "verify_state_save",
        "experimental_verify", "verifysort", "verifysort_nr"), _VERIFY),
    **dict.fromkeys(("nrfiles", "filesize", "file_append", "fill_device", "pre_read", "lockfile"), _TARGETS),
    **dict.fromkeys(("steadystate", "steadystate_duration", "steadystate_ramp_time", "ss", "ss_dur", "ss_ramp"), _STEADY),
    **dict.fromkeys(("read_iolog", "write_iolog", "replay_redirect", "replay_no_stall", "replay_time_scale", "replay_scale",
        "replay_align", "replay_skip", "read_iolog_chunked"), "recorded I/O is not replayed"),
    **dict.fromkeys(("trim_backlog", "trim_backlog_batch", "trim_percentage", "trim_verify_zero"), "calyx does not trim"),
    **dict.fromkeys(("zonemode", "zonesize", "zonerange", "zoneskip", "zonecapacity", "read_beyond_wp", "max_open_zones",
        "job_max_open_zones", "ignore_zone_limits", "zone_reset_threshold", "zone_reset_frequency"),
        "zoned devices are not measured; random_distribution: zoned:.. has zones of access"),
    **dict.fromkeys(("latency_target", "latency_window", "latency_percentile", "latency_run", "max_latency"),
        "a rate at which a latency holds is searched for by find: iops_at 'p99<2ms' in an inventory"),
    **dict.fromkeys(("rate_min", "rate_iops_min", "rate_cycle", "rate_ignore_thinktime"), "a rate is an upper bound"),
    **dict.fromkeys(("exec_prerun", "exec_postrun"), "no programs are run on the guests"),
    **dict.fromkeys(("flow", "flow_id", "flow_sleep", "wait_for"), "sections are workloads of their own, one after another"),
    **dict.fromkeys(("nonvectored", "force_async", "uncached", "nowait", "cmd_type", "cmdprio", "cmdprio_percentage", "cmdprio_class",
        "cmdprio_bssplit"), "how io_uring is used is chosen by setup, refill and buffers"),
    "numa_cpu_nodes": "numa_mem_policy=bind:NODE says the node of threads and buffers",
    "percentage_random": "a workload is sequential or random",
    "kb_base": "sizes are fio's: 4k is 4096",
    "thinktime_spin": "a workload that thinks sleeps",
    "thinktime_blocks_type": "thinktime_blocks counts I/Os",
    "thinktime_iotime": "thinktime_blocks says when a workload thinks",
    "cpumask": "cpus_allowed lists the CPUs",
    "rwmixcycle": "the mix is drawn for each I/O",
}  # fmt: skip

OTHERS = frozenset({
    "allow_mounted_write", "atomic", "cgroup", "cgroup_nodelete", "cgroup_weight", "gid", "merge_blktrace_file", "merge_blktrace_iters",
    "merge_blktrace_scalars", "lockmem", "nice", "offset_align", "prio", "prioclass", "profile", "rw_sequencer", "serialize_overlap",
    "sync_file_range", "uid", "write_barrier", "write_hint", "fsync_on_close", "hugepage-size",
})  # fmt: skip
