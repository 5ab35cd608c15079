"""An inventory becomes guests and workloads: layers, ranges, references, expansion, and every problem at once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jsonschema
import pytest
import yaml

from calyx_orch import inventory, names, workloads
from calyx_orch.errors import InventoryErrors, UsageError
from calyx_orch.model import Baselines, Guest, HostKeyPolicy, Impact, Inventory, LoadMode, Policy, Rw, TransportKind

ROOT = Path(__file__).parent.parent.parent
PRESETS = {
    "four-corners": "workloads: [{name: r, rw: randread, size: 1m}]",
    "pair": "workloads: [{name: a, rw: read, size: 1m}, {name: b, rw: write, size: 1m, iodepth: [1, 2]}]",
}
HEAD = "defaults: {targets: {data: /data}}\n"


def parse(text: str, *, head: str = HEAD) -> Inventory:
    return inventory.parse(head + text, source="inventory.yaml", base_dir="/base", presets=PRESETS)


def problems(text: str, *, head: str = HEAD) -> list[str]:
    with pytest.raises(InventoryErrors) as caught:
        parse(text, head=head)
    return [str(problem) for problem in caught.value.problems]


def guest(text: str, name: str = "vm1", *, head: str = "") -> Guest:
    return next(one for one in parse(text, head=head).guests if one.name == name)


# --- layers ------------------------------------------------------------------------------------------------------


def test_the_closest_setting_wins() -> None:
    """Guest over groups (the later over the earlier) over vm_host over defaults over built in."""
    text = """
defaults: {user: d, port: 1001, fio: /d/fio, agent_dir: /d, connect_timeout: 5s, targets: {data: /data}}
vm_hosts: {hv1: {user: h, port: 1002, fio: /h/fio, agent_dir: /h}}
groups:
  g1: {user: g1, port: 1003, fio: /g1/fio}
  g2: {user: g2, port: 1004}
guests: {vm1: {vm_host: hv1, groups: [g1, g2], user: own}}
"""
    one = guest(text)
    connection = one.connection
    assert (connection.user, connection.port, one.fio_path, one.agent_dir) == ("own", 1004, "/g1/fio", "/h")
    assert (connection.connect_timeout_s, connection.host_key_policy) == (5.0, HostKeyPolicy.STRICT)
    assert one.groups == ("g1", "g2")


def test_groups_and_vm_hosts_may_say_where_their_members_are() -> None:
    """A group names the vm_host, the vm_host the storage; a guest may differ."""
    text = """
vm_hosts: {hv1: {storage: csv1}, hv2: }
storage: {csv1: {free: 1TiB}, san: }
groups: {g: {vm_host: hv1}}
guests: {vm1: {groups: g}, vm2: {groups: g, storage: san}, vm3: {vm_host: hv2}, vm4: {groups: g, storage: ~}, vm5: }
"""
    found = {one.name: one for one in parse(text).guests}
    assert [found[f"vm{n}"].domain for n in range(1, 6)] == [
        "storage:csv1", "storage:san", "vm_host:hv2", "vm_host:hv1", "guest:vm5",
    ]  # fmt: skip


def test_labels_and_targets_are_merged_name_by_name() -> None:
    """Null takes a target away."""
    text = """
defaults: {targets: {data: /data, xfs: {path: /xfs, allow_ram: true}}, labels: {a: 1, b: 2}}
guests: {vm1: {targets: {data: /other, extra: /e}, labels: {b: 3}}, vm2: {targets: {xfs: ~}}}
"""
    one = guest(text)
    assert {target.name: (target.path, target.allow_ram) for target in one.targets} == {
        "data": ("/other", False), "xfs": ("/xfs", True), "extra": ("/e", False),
    }  # fmt: skip
    assert dict(one.labels) == {"a": "1", "b": "3"}
    assert [target.name for target in guest(text, "vm2").targets] == ["data"]


def test_null_goes_back_to_what_is_built_in() -> None:
    """A guest can undo a default."""
    text = (
        "defaults: {user: bench, port: 2222, jump: a@b, targets: {d: /d}}\nguests: {vm1: {user: ~, port: ~, jump: ~}}"
    )
    connection = guest(text).connection
    assert (connection.user, connection.port, connection.jump) == (None, 22, None)


def test_null_takes_a_guest_out_of_the_groups_of_defaults() -> None:
    """As it does with every key; a group of defaults that there is not is told where it is written."""
    text = "groups: {g: {port: 23}}\ndefaults: {groups: g, targets: {d: /d}}\nguests: {vm1: , vm2: {groups: ~}}"
    assert [(guest(text, name).groups, guest(text, name).connection.port) for name in ("vm1", "vm2")] == [
        (("g",), 23), ((), 22),
    ]  # fmt: skip
    slip = "defaults: {targets: {d: /d}, groups: [h]}\nguests: {vm1: }"
    assert problems(slip, head="") == ["inventory.yaml:1:39: unknown group 'h': declare it under groups:"]


def test_guests_may_be_a_list_of_names() -> None:
    """Beside mappings; each knows its line."""
    found = parse("guests:\n  - vm1\n  - {name: vm2, port: 23}\n  - db[1:2]\n").guests
    assert [(one.name, one.connection.address, one.connection.port, one.line) for one in found] == [
        ("vm1", "vm1", 22, 3), ("vm2", "vm2", 23, 4), ("db1", "db1", 22, 5), ("db2", "db2", 22, 5),
    ]  # fmt: skip
    assert problems("guests: [vm1, vm1]") == ["inventory.yaml:2:15: guest 'vm1' is named twice: line 2 and line 2"]


def test_relative_files_start_at_the_inventory() -> None:
    """Absolute ones and ~ are left alone."""
    text = "guests: {vm1: {key: [id, /abs/id, ~/.ssh/id], known_hosts: ../known, ssh_config: ./conf}}"
    connection = guest(text, head=HEAD).connection
    assert connection.key_files == ("/base/id", "/abs/id", "~/.ssh/id")
    assert (connection.known_hosts, connection.ssh_config) == ("/known", "/base/conf")


def test_jump_hosts_by_name_and_spelled_out() -> None:
    """A declared one takes keys from defaults, but neither user nor port; it may be reached through another."""
    text = """
defaults: {user: bench, port: 2222, key: /k, targets: {d: /d}}
jump_hosts: {outer: {address: o.example, user: ops}, inner: {jump: outer, key: /i, port: 2200}}
guests: {vm1: {jump: inner}, vm2: {jump: "a@b@[fe80::1]:22022"}}
"""
    inner = guest(text).connection.jump
    assert inner is not None
    assert inner.jump is not None
    assert (inner.address, inner.user, inner.port, inner.key_files) == ("inner", None, 2200, ("/i",))
    assert (inner.jump.address, inner.jump.user, inner.jump.port, inner.jump.key_files) == (
        "o.example",
        "ops",
        22,
        ("/k",),
    )
    spelled = guest(text, "vm2").connection.jump
    assert spelled is not None
    assert (spelled.address, spelled.user, spelled.port) == ("fe80::1", "a@b", 22022)


def test_a_circle_of_jump_hosts_is_refused() -> None:
    """It names the way round."""
    found = problems("jump_hosts: {a: {jump: b}, b: {jump: a}}\nguests: {vm1: {jump: a}}")
    assert found == ["inventory.yaml:2:38: jump hosts lead in a circle: a > b > a"]


# --- ranges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("vm1", ["vm1"]), ("vm[1:3]", ["vm1", "vm2", "vm3"]), ("vm[08:11]", ["vm08", "vm09", "vm10", "vm11"]),
        ("vm[1:7:3]", ["vm1", "vm4", "vm7"]), ("[a:c]x", ["ax", "bx", "cx"]), ("h[1:2]-v[01:02]", ["h1-v01", "h1-v02", "h2-v01", "h2-v02"]),
        ("vm[9:10]", ["vm9", "vm10"]),
    ],
)  # fmt: skip
def test_ranges_are_expanded_in_counting_order(pattern: str, expanded: list[str]) -> None:
    """Leading zeros keep the width."""
    assert list(names.expand(pattern)) == expanded


@pytest.mark.parametrize(
    "pattern", ["vm[3:1]", "vm[1-3]", "vm[1:", "vm]", "vm[1:999999999]", "vm[1:1000][1:1000]", "vm[1:3:0]"]
)
def test_ranges_that_are_none_are_refused(pattern: str) -> None:
    """Backwards, unbalanced, or beyond all bounds; at once."""
    with pytest.raises(ValueError, match=r"range|names"):
        names.expand(pattern)


def test_a_range_is_resolved_once_and_not_for_each_of_its_guests() -> None:
    """Ten thousand guests with a range of addresses take no square of time, and a slip in their settings is one problem."""
    begin = time.process_time()
    guests = parse("guests:\n  vm[1:100]-[1:100]: {address: '10.[1:100].0.[1:100]'}").guests
    assert time.process_time() - begin < 2
    assert (len(guests), guests[-1].name, guests[-1].connection.address) == (10_000, "vm100-100", "10.100.0.100")
    text = (
        "vm_hosts: {hv1: }\nguests:\n  vm[1:3]: {vm_host: hv2, address: '10.0.0.[1:2]'}\n  x[1:2]: {targets: {data: ~}}"
    )
    assert problems(text) == [
        "inventory.yaml:4:22: unknown vm_host 'hv2' (did you mean 'hv1'?)",
        "inventory.yaml:4:36: 'address': '10.0.0.[1:2]' stands for 2 addresses, the name for 3 guests",
        "inventory.yaml:5:3: guest 'x[1:2]' has no target: give targets: {data: /directory} here or under defaults",
    ]


def test_a_name_that_is_the_address_may_hold_no_port() -> None:
    assert problems("guests:\n  vm1:22:") == [
        "inventory.yaml:3:3: the name is the address, but 'vm1:22' holds a port: write it as port: 22; give address:"
    ]


def test_addresses_follow_the_ranges_of_names() -> None:
    """As many addresses as names, in the same order; settings are shared."""
    guests = parse("guests:\n  h[1:2]-vm[1:2]: {address: '10.[1:2].0.[1:2]', labels: {a: b}}").guests
    assert [(one.name, one.connection.address) for one in guests] == [
        ("h1-vm1", "10.1.0.1"), ("h1-vm2", "10.1.0.2"), ("h2-vm1", "10.2.0.1"), ("h2-vm2", "10.2.0.2"),
    ]  # fmt: skip
    assert problems("guests:\n  vm[1:3]: {address: '10.0.0.[1:2]'}") == [
        "inventory.yaml:3:22: 'address': '10.0.0.[1:2]' stands for 2 addresses, the name for 3 guests"
    ]


# --- problems ----------------------------------------------------------------------------------------------------


def test_every_problem_is_told_at_once_in_order() -> None:
    """Syntax of values, unknown keys, unknown references and doubles of one document."""
    text = """\
vm_hosts: {hv1: {fre: 1GiB}}
guests:
  vm1: {prot: 22}
  vm2: {vm_host: hv2, port: 70000, storage: csv, groups: [g, h]}
  vm3: {address: localhost, jump: b1}
  vm4: {address: "::1", user: ""}
workloads:
  - pare
  - {rw: randread}
  - {rw: [read, wirte], size: 1m}
  - {rw: write, size: 4k, iodepth: 32, targets: [dta]}
load: altogether
policy: {quorum: 80}
"""
    assert problems(text) == [
        "inventory.yaml:2:18: unknown key 'fre' (did you mean 'free'?)",
        "inventory.yaml:4:9: unknown key 'prot' (did you mean 'port'?)",
        "inventory.yaml:5:18: unknown vm_host 'hv2' (did you mean 'hv1'?)",
        "inventory.yaml:5:29: 'port' must be at most 65535, not '70000'",
        "inventory.yaml:5:45: unknown storage 'csv': declare it under storage:",
        "inventory.yaml:5:59: unknown group 'g': declare it under groups:",
        "inventory.yaml:5:62: unknown group 'h': declare it under groups:",
        "inventory.yaml:6:35: unknown jump host 'b1': declare it under jump_hosts:, or write user@host:port",
        "inventory.yaml:7:3: guests 'vm3' (line 6) and 'vm4' are the same machine, ::1 port 22: it would be loaded twice and "
        "counted as two; say same_machine: true on both when that is meant",
        "inventory.yaml:7:31: 'user' is empty: give a text, or leave the key out",
        "inventory.yaml:9:5: unknown preset 'pare' (did you mean 'pair'?)",
        "inventory.yaml:10:5: missing key 'size' in workloads[1]",
        "inventory.yaml:11:17: 'rw[1]' must be one of read, write, randread, randwrite, rw, randrw, trim, randtrim, not 'wirte' "
        "(did you mean 'write'?)",
        "inventory.yaml:12:23: 'write-4k': size 4 KiB is less than bs x iodepth = 128 KiB: every I/O in flight needs a place of its own",
        "inventory.yaml:13:7: 'load' must be one of together, per_domain, alone, staggered, not 'altogether' (did you mean 'together'?)",
        "inventory.yaml:14:18: 'quorum': '80' is no percentage: write it as 80%",
    ]


def test_an_unknown_target_is_named_where_the_workload_names_it() -> None:
    """With the closest that a guest has."""
    found = problems("guests: {vm1: }\nworkloads: [{rw: read, size: 1m, targets: [data, dta]}]")
    assert found == [
        "inventory.yaml:3:50: unknown target 'dta' of workload 'read-4k': no guest has it (did you mean 'data'?)"
    ]


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        ("{d: /dev/sdb}", "is given as {device: /dev/disk/by-id/..., destructive: true}"),
        ("{d: /./dev//sdb}", "is given as {device: /dev/disk/by-id/..., destructive: true}"),
        ("{d: {device: /dev/disk/by-id/x}}", "is destroyed: write destructive: true when that is meant"),
        ("{d: {serial: S1}}", "is destroyed: write destructive: true when that is meant"),
        ("{d: {device: /dev/disk/by-id/x, destructive: no}}", "is destroyed: write destructive: true"),
        ("{d: {device: /dev/sdb, destructive: true}}", "/dev/sdb may be another disk after the next boot"),
        ("{d: {device: /dev/disk/by-path/x, destructive: true}}", "may be another disk after the next boot"),
        ("{d: {device: /data/x, destructive: true}}", "is no path below /dev"),
        ("{d: {device: /dev/../etc/x, destructive: true}}", "is no path below /dev"),
        ("{d: {device: /dev/disk/by-id/x, path: /a, destructive: true}}", "either a path, or a raw device"),
        ("{d: {allow_ram: true}}", "either a path, or a raw device"),
        ("{d: {path: /a, destructive: true}}", "'destructive' has no meaning for a directory"),
        ("{d: {serial: S1, destructive: true, reserve: 1g}}", "no meaning for a raw device"),
        ("{d: data}", "is a relative path"), ("{d: /a/../b}", "holds '..'"), ("{d: ''}", "is empty"), ("/data", "must be a mapping"),
    ],
)  # fmt: skip
def test_targets_are_absolute_directories(targets: str, reason: str) -> None:
    """Devices and relative paths are refused with the reason, and nothing else is said."""
    found = problems(f"guests: {{vm1: {{targets: {targets}}}}}", head="")
    assert len(found) == 1
    assert reason in found[0]


def test_a_raw_device_is_named_by_what_does_not_change() -> None:
    """By its stable name, by a path and its serial number, or by the serial number alone."""
    targets = (
        "{a: {device: /dev/disk/by-id/nvme-X1, destructive: true}, b: {device: /dev/sdb, serial: S2, destructive: true}, "
        "c: {serial: S3, destructive: true}, d: {path: /data, reserve: 2g}}"
    )
    inventory = parse(
        f"guests: {{vm1: {{targets: {targets}, dead_man: 20s}}}}\nworkloads: [{{rw: read, size: 1m}}]", head=""
    )
    (guest,) = inventory.guests
    assert [(one.path, one.device, one.serial, one.reserve_bytes) for one in guest.targets] == [
        ("/dev/disk/by-id/nvme-X1", True, None, None), ("/dev/sdb", True, "S2", None), ("serial:S3", True, "S3", None),
        ("/data", False, None, 2 << 30),
    ]  # fmt: skip
    assert guest.dead_man_s == 20.0


def test_a_guest_without_target_is_refused() -> None:
    """It is named."""
    assert "guest 'vm1' has no target" in problems("guests: {vm1: }", head="")[0]


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ("{rw: read, size: 1m, zero_buffers: yes}", "'zero_buffers' is refused: zeros are compressed"),
        ("{rw: read, size: 1m, ramp: 5s}", "unknown key 'ramp' (did you mean 'ramp_time'?)"),
        ("{rw: read, size: 1m, bs: 1000}", "no multiple of 512"), ("{rw: read, size: 1m, bs: 128m}", "no multiple of 512"),
        ("{rw: read, size: 1m, iodepth: 0}", "at least 1"), ("{rw: read, size: 1g, iodepth: 4097}", "at most 4096"),
        ("{rw: read, size: 1m, numjobs: 257}", "at most 256"), ("{rw: read, size: 1m, runtime: 0}", "more than 0"),
        ("{rw: read, size: 1m, rwmixread: 70}", "no meaning"), ("{rw: read, size: 1m, fsync: 1}", "no meaning"),
        ("{rw: read, size: 1m, iodepth: [1, 1]}", "names a value twice"), ("{rw: read, size: 1m, iodepth: []}", "is empty"),
        ("{rw: read, size: 1t, bs: 64m, iodepth: 17}", "of buffers a job"),
        ("{rw: read, size: 1m, runtime: 48h}", "a longer interval_ms"), ("{rw: read, size: 1m, runtime: 10ms}", "longer than its runtime"),
        ("{rw: read, size: 1m, name: a/b}", "no name of a workload"), ("{size: 1m}", "missing key 'rw'"),
        ("{rw: read, size: 1m, iodepth: 1_0}", "no whole number"), ("{rw: read, size: 1m, direct: maybe}", "neither true nor false"),
    ],
)  # fmt: skip
def test_a_workload_that_makes_no_sense_is_refused(workload: str, reason: str) -> None:
    """One sentence, with the reason."""
    found = problems(f"guests: {{vm1: }}\nworkloads:\n  - {workload}")
    assert len(found) == 1, found
    assert reason in found[0]


def test_the_words_of_fio_ssh_and_ansible_lead_to_ours() -> None:
    """Where a word is known elsewhere by another name, that is no near miss of one here."""
    text = """guests:
  vm1: {ansible_host: a}
  vm2: {HostName: a}
  vm3: {ProxyJump: a}
workloads: [{name: w, readwrite: read, blocksize: 4k, size: 1m}]
"""
    assert [one.partition(": ")[2] for one in problems(text)] == [
        "'ansible_host' is refused: it is called address; inventories/from_ansible reads whole inventories of Ansible",
        "'HostName' is refused: it is called address",
        "'ProxyJump' is refused: it is called jump",
        "missing key 'rw' in workload 'w'",
        "'readwrite' is refused: the pattern is called rw",
        "'blocksize' is refused: the size of an I/O is called bs",
    ]
    (one,) = parse("guests: [vm1]\nworkloads: [{rw: readwrite, size: 1m}]").workloads
    assert (one.name, one.rw) == ("rw-4k", Rw.RW)
    jsonschema.Draft202012Validator(inventory.schema()).validate(
        {"guests": ["vm1"], "workloads": [{"rw": ["readwrite", "read"], "size": "1m", "rate": 1000000}]}
    )


def test_a_workload_without_a_list_is_told_by_its_place() -> None:
    head = "guests: [vm1]\nworkloads: {rw: read, size: 1m, "
    assert problems(head + "targets: dta}")[0].startswith("inventory.yaml:3:42: unknown target 'dta'")
    assert problems(head + "setup: psync}")[0].startswith("inventory.yaml:3:40: workload 'read-4k' has setup psync")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("10.0.0.010", "no valid IP address"), ("10.0.0.256", "no valid IP address"), ("vm1:22", "write it as port: 22"),
        ("'[::1]:22'", "write it as port: 22"), ("'a b'", "no host name or address"), ("-oProxyCommand=x", "no host name or address"),
        ("'::zz'", "no valid IP address"), ("'@vm1'", "no user before the @"), ("[a]", "is text, not a list"),
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(address: str, reason: str) -> None:
    """IPv4 with leading zeros means another machine to some resolvers."""
    assert reason in problems(f"guests: {{vm1: {{address: {address}}}}}")[0]


def test_ipv6_addresses_need_no_brackets() -> None:
    """They may have them, and a zone."""
    guests = parse(
        "guests: {a: {address: 'fe80::1%eth0'}, b: {address: '[2001:db8::1]'}, c: {address: 'u@::1'}}"
    ).guests
    assert [one.connection.address for one in guests] == ["fe80::1%eth0", "2001:db8::1", "::1"]
    assert guests[2].connection.user == "u"


def test_the_same_machine_twice_needs_the_word_of_both() -> None:
    """Case, final dots, mapped IPv4 and longer spellings of IPv6 do not hide it; another port or way there is another machine."""
    assert len(problems("guests: {a: {address: VM.example.}, b: {address: vm.example}}")) == 1
    assert len(problems("guests: {a: {address: '::ffff:10.0.0.1'}, b: {address: 10.0.0.1}}")) == 1
    assert (
        len(problems("guests: {a: {address: '2001:db8:0::1'}, b: {address: '2001:db8::1', same_machine: true}}")) == 1
    )
    assert len(parse("guests: {a: {address: x, same_machine: true}, b: {address: x, same_machine: yes}}").guests) == 2
    assert len(parse("guests: {a: {address: x, jump: j@k}, b: {address: x}, c: {address: x, port: 23}}").guests) == 3


def test_names_that_cannot_be_names_are_refused() -> None:
    """Brackets, globs, lists and slashes have a meaning elsewhere; a name given twice by ranges is found."""
    for name in ("vm[1", "'vm*'", "'a,b'", "a/b", "-x", "'..'", "' a'"):
        assert "guest name" in problems(f"guests:\n  {name}: {{address: x}}")[0]
    assert problems("guests:\n  vm[1:3]:\n  vm2: {address: y}") == [
        "inventory.yaml:4:3: guest 'vm2' is named twice: line 3 and line 4"
    ]


def test_many_problems_end_in_a_count() -> None:
    """A generated file with one slip per line does not flood the terminal."""
    found = problems("guests:\n" + "".join(f"  vm{n}: {{prot: 1}}\n" for n in range(1000)))
    assert len(found) == inventory.PROBLEMS_SHOWN_MAX + 1
    assert found[-1].endswith("and 800 more problems")


# --- workloads and the rest --------------------------------------------------------------------------------------


def test_lists_are_expanded_into_their_product_with_clear_names() -> None:
    """In the order of parameters; the name tells what differs, and only that."""
    found = parse("guests: {vm1: }\nworkloads:\n  - {name: seq, rw: [read, write], bs: 1m, iodepth: [8, 16], size: 1g}\n"
                  "  - {rw: randread, bs: [4k, 1536], numjobs: 2, iodepth: [1, 32], size: 1g,"
                  " runtime: 30s, ramp_time: 500ms}").workloads  # fmt: skip
    assert [one.name for one in found] == [
        "seq-read-qd8", "seq-read-qd16", "seq-write-qd8", "seq-write-qd16",
        "randread-4k-qd1", "randread-4k-qd32", "randread-1536-qd1", "randread-1536-qd32",
    ]  # fmt: skip
    assert (found[0].rw, found[0].bs_bytes, found[0].iodepth, found[0].size_bytes) == (Rw.READ, 1 << 20, 8, 1 << 30)
    assert (found[-1].numjobs, found[-1].runtime_s, found[-1].ramp_s, found[-1].is_short) == (2, 30.0, 0.5, True)


def test_every_parameter_reaches_its_workload() -> None:
    """Fio's words in, the model's fields out."""
    text = ("guests: {vm1: }\nworkloads: [{name: w, rw: randrw, bs: 8k, iodepth: 2, numjobs: 3, size: 1m, runtime: 61, ramp_time: 11,"
            " rwmixread: 70, rate_iops: 100, direct: no, fsync: 4, randseed: 5, setup: coop, refill: batch,"
            " buffers: plain, interval_ms: 200, targets: data}]")  # fmt: skip
    (one,) = parse(text).workloads
    assert (one.numjobs, one.rwmixread, one.rate_iops, one.direct, one.fsync, one.seed) == (3, 70, 100, False, 4, 5)
    assert (one.setup, one.refill, one.buffers, one.interval_ms, one.targets) == (
        "coop",
        "batch",
        "plain",
        200,
        ("data",),
    )
    assert (one.runtime_s, one.ramp_s, one.is_short) == (61.0, 11.0, False)


def test_presets_with_and_without_changes() -> None:
    """A name in front of a preset of several keeps them apart."""
    found = parse(
        "guests: {vm1: }\nworkloads: [pair, {preset: pair, name: big, size: 2m, iodepth: 4}, {preset: four-corners, name: own}]"
    ).workloads
    assert [(one.name, one.size_bytes, one.iodepth) for one in found] == [
        ("a", 1 << 20, 1), ("b-qd1", 1 << 20, 1), ("b-qd2", 1 << 20, 2), ("big-a", 2 << 20, 4), ("big-b", 2 << 20, 4), ("own", 1 << 20, 1),
    ]  # fmt: skip


def test_two_workloads_of_one_name_are_refused() -> None:
    """With both lines."""
    found = problems("guests: {vm1: }\nworkloads:\n  - {rw: read, size: 1m}\n  - {rw: read, size: 2m}")
    assert found == ["inventory.yaml:5:5: two workloads are called 'read-4k' (line 4 and line 5): give one a name:"]


def test_the_workloads_are_the_four_corners_when_none_are_named() -> None:
    """So the smallest inventory is a list of guests with a target."""
    assert [one.name for one in parse("guests: {vm1: }").workloads] == ["r"]


@pytest.mark.parametrize(
    ("written", "baselines"),
    [
        ("auto", Baselines()), ("none", Baselines((), auto=False)), ("fio-libaio", Baselines(("fio-libaio",), auto=False)),
        ("[fio-io_uring, fio-libaio]", Baselines(("fio-io_uring", "fio-libaio"), auto=False)),
        ("{engines: [fio-libaio], when_missing: skip}", Baselines(("fio-libaio",), auto=False, skip_when_missing=True)),
    ],
)  # fmt: skip
def test_baselines_in_every_form(written: str, baselines: Baselines) -> None:
    """auto, none, a list, or the long form."""
    assert parse(f"guests: {{vm1: }}\nbaselines: {written}").baselines == baselines


def test_the_rest_of_the_top() -> None:
    """Loads, impact, policy, waits, seed, name; and what holds without them."""
    text = """guests: {vm1: }
name: n
load: [together, alone]
impact: {max_rate: 200MB/s, max_guests_per_domain: 4, max_bytes_written: 10GB}
policy: {quorum: 80%}
repetitions: 2
settle: 0
stagger: 500ms
lost_time_probe: 0
seed: 7
"""
    said = parse(text)
    assert (said.name, said.load, said.repetitions, said.seed) == ("n", (LoadMode.TOGETHER, LoadMode.ALONE), 2, 7)
    assert said.impact == Impact(200_000_000, 4, 10_000_000_000)
    assert said.policy == Policy("continue", 0.8)
    assert (said.settle_s, said.stagger_s, said.lost_time_probe_s) == (0.0, 0.5, 0.0)
    plain = parse("guests: {vm1: }")
    assert (plain.name, plain.repetitions, plain.settle_s, plain.policy, plain.impact) == (
        "inventory",
        3,
        60.0,
        Policy(),
        Impact(),
    )
    assert (plain.text, plain.source) == (HEAD + "guests: {vm1: }", "inventory.yaml")
    assert parse("guests: {vm1: }\npolicy: stop").policy == Policy("stop")
    assert guest("guests: {vm1: {transport: local}}", head=HEAD).connection.transport is TransportKind.LOCAL


@pytest.mark.parametrize("key", ["schedule", "budgets", "hosts", "notify"])
def test_keys_that_nothing_is_built_for_are_unknown(key: str) -> None:
    """They are never ignored."""
    found = problems(f"guests: {{vm1: }}\n{key}: 1")
    assert len(found) == 1
    assert f"'{key}'" in found[0]


# --- the command line --------------------------------------------------------------------------------------------


def test_guests_of_the_command_line() -> None:
    """The last @ decides, IPv6 with a port stands in brackets, and the text says the same again."""
    given = inventory.from_guests(
        ["bench@vm1:22", "a@b@vm2", "[::1]:2201", "fe80::2", "vm9:23", "vm9:24"], target="/data", presets=PRESETS
    )
    assert [(one.name, one.connection.address, one.connection.port, one.connection.user) for one in given.guests] == [
        ("vm1", "vm1", 22, "bench"), ("vm2", "vm2", 22, "a@b"), ("::1", "::1", 2201, None), ("fe80::2", "fe80::2", 22, None),
        ("vm9:23", "vm9", 23, None), ("vm9:24", "vm9", 24, None),
    ]  # fmt: skip
    assert {target.path for one in given.guests for target in one.targets} == {"/data"}
    again = inventory.parse(given.text, source="--guest", base_dir="", presets=PRESETS)
    assert again == given


@pytest.mark.parametrize(
    ("guests", "target", "reason"),
    [
        ([], "/d", "no guest"), (["vm1:0"], "/d", "no port"), (["vm1:x"], "/d", "no port"), (["@vm1"], "/d", "no user"),
        (["[::1"], "/d", "brackets|written"),
        (["vm1"], "/dev/sda", "a raw device"), (["vm1"], "data", "relative"), (["vm1", "vm1"], "/d", "named twice"),
        (["localhost", "127.0.0.1"], "/d", "same machine"),
    ],
)  # fmt: skip
def test_guests_of_the_command_line_are_checked(guests: list[str], target: str, reason: str) -> None:
    """By the same rules as an inventory."""
    with pytest.raises(UsageError, match=reason):
        inventory.from_guests(guests, target=target, presets=PRESETS)


def test_workloads_of_the_command_line_may_be_presets() -> None:
    """Names of the inventory's own stay; a preset's name brings its workloads instead of the others."""
    fleet = parse(
        "guests: {vm1: }\nworkloads: [{name: own, rw: read, size: 1m, iodepth: [1, 2]}, {name: other, rw: read, size: 1m}]"
    )
    assert inventory.choose_workloads(fleet, ["own"], presets=PRESETS) == fleet
    chosen = inventory.choose_workloads(fleet, ["own", "pair"], presets=PRESETS)
    assert [one.name for one in chosen.workloads] == ["own-qd1", "own-qd2", "a", "b-qd1", "b-qd2"]


# --- what ships --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "inventories").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_can_be_parsed_and_follows_the_schema(path: Path) -> None:
    """Examples are copied: none may hold a slip."""
    text = path.read_text(encoding="utf-8")
    fleet = inventory.parse(text, source=str(path), base_dir=str(path.parent), presets=workloads.read_presets())
    assert fleet.guests
    jsonschema.Draft202012Validator(inventory.schema()).validate(yaml.safe_load(text))


@pytest.mark.parametrize("name", sorted(workloads.read_presets()))
def test_every_preset_can_be_parsed(name: str) -> None:
    """And says what it is about."""
    fleet = inventory.from_guests(["vm1"], target="/d", presets=workloads.read_presets(), workloads=[name])
    assert fleet.workloads
    assert "about:" in workloads.read_presets()[name]


def test_the_presets_are_what_their_names_promise() -> None:
    """Four corners, a 70/30 mix, and the depths of the paper."""
    presets = workloads.read_presets()

    def of(name: str) -> Inventory:
        return inventory.from_guests(["vm1"], target="/d", presets=presets, workloads=[name])

    assert {(one.rw, one.bs_bytes, one.iodepth) for one in of("four-corners").workloads} == {
        (Rw.RANDREAD, 4096, 32), (Rw.RANDWRITE, 4096, 32), (Rw.READ, 1 << 20, 16), (Rw.WRITE, 1 << 20, 16),
    }  # fmt: skip
    assert {(one.rw, one.rwmixread) for one in of("mixed").workloads} == {(Rw.RANDRW, 70)}
    assert [(one.rw, one.iodepth) for one in of("paper").workloads] == [
        (rw, depth) for rw in (Rw.READ, Rw.WRITE) for depth in (8, 16, 32, 64)
    ]
    assert {one.bs_bytes for one in of("paper").workloads} == {1 << 20}
    assert all(one.is_short for one in of("quick").workloads)
    assert not any(one.is_short for name in ("four-corners", "mixed", "paper") for one in of(name).workloads)


def test_the_first_inventory_is_the_example() -> None:
    """`calyx-orch init` writes what inventories/first.yaml shows, and it parses."""
    assert (ROOT / "inventories" / "first.yaml").read_text(encoding="utf-8") == inventory.first_inventory()
    fleet = inventory.parse(
        inventory.first_inventory(), source="inventory.yaml", base_dir="/b", presets=workloads.read_presets()
    )
    assert [one.name for one in fleet.guests] == ["vm1", "vm2"]


def test_the_schema_in_the_docs_is_current() -> None:
    """It is generated: `calyx-orch schema > docs/inventory.schema.json`."""
    written = json.loads((ROOT / "docs" / "inventory.schema.json").read_text(encoding="utf-8"))
    assert written == inventory.schema()
    jsonschema.Draft202012Validator.check_schema(written)


@pytest.mark.parametrize(
    "slip",
    [
        "guests: {vm1: {prot: 22}}",
        "guests: 3",
        "load: altogether",
        "workloads: [{rw: reed}]",
        "guests: {vm1: {port: 0}}",
    ],
)
def test_the_schema_sees_what_the_program_refuses(slip: str) -> None:
    """An editor underlines it too."""
    assert not jsonschema.Draft202012Validator(inventory.schema()).is_valid(yaml.safe_load(slip))


def test_two_thousand_guests_take_less_than_three_seconds() -> None:
    """Of CPU time, so that a busy machine does not fail it."""
    text = (
        "vm_hosts: {"
        + ", ".join(f"hv{n}: " for n in range(50))
        + "}\nguests:\n"
        + "".join(
            f"  vm{n}: {{address: 10.0.{n // 250}.{n % 250}, port: 2222, vm_host: hv{n % 50}, labels: {{rack: r{n % 40}}}}}\n"
            for n in range(2000)
        )
    )
    begin = time.process_time()
    fleet = parse(text)
    assert time.process_time() - begin < 3
    assert len(fleet.guests) == 2000


@pytest.mark.parametrize(("path", "is_taken"), [("/dev/shm", True), ("/dev/shm/x", True), ("/dev/shmem", False)])
def test_shared_memory_is_a_directory_below_dev(path: str, is_taken: bool) -> None:
    """Itself, and what lies in it; a name that begins like it is a device's."""
    found = problems(f"guests: {{vm1: {{targets: {{d: {{path: {path}, allow_ram: true}}}}}}}}\nworkloads: [quick]")
    assert any("a path is that of a directory" in one for one in found) is not is_taken
