"""inventories/from_ansible turns Ansible's inventories into ours, and says what it leaves out."""

from __future__ import annotations

import ast
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from calyx_orch import inventory, sources, workloads
from calyx_orch.inventory.settings.guests import GuestSettings
from calyx_orch.model import Inventory, TransportKind

PROGRAM = Path(__file__).parent.parent.parent / "inventories" / "from_ansible"

INI = """\
# a comment
lone ansible_host=10.0.0.9 ansible_password=hunter2
[web]
www[01:03].example.com:2222 ansible_user="first last"   # a note
db-[a:b] ansible_ssh_private_key_file=/k/own
[web:vars]
ansible_ssh_private_key_file=~/.ssh/k
ansible_ssh_common_args='-o ProxyCommand="ssh -W %h:%p -q -p 2200 ops@bastion"'
[win]
w1 ansible_connection=winrm
[site:children]
web
win
[site:vars]
calyx_vm_host=hv1
ansible_user=site
[all:vars]
ansible_user=bench
"""

YAML = """\
all:
  vars: {ansible_user: bench, base: example.com}
  hosts:
    no: {ansible_host: 10.0.0.1}
    here: {ansible_connection: local}
  children:
    east:
      hosts:
        east-[08:10]: {ansible_port: 2222}
        templated: {ansible_host: "{{ inventory_hostname }}.{{ base }}"}
        clever: {ansible_host: "{{ lookup('env', 'X') }}"}
      vars: {ansible_ssh_common_args: -J ops@jump.example}
    west:
      hosts:
        west1:
          ansible_user: !vault |
            $ANSIBLE_VAULT;1.1;AES256
            6162636465
        west2: {calyx_targets: {data: /srv, xfs: /xfs}, calyx_storage: csv}
      children: {deep: {hosts: {west2: , deep1: }, vars: {ansible_user: deep}}}
"""

JSON = {
    "_meta": {"hostvars": {"a": {"ansible_host": "10.0.0.1", "ansible_port": 22022}, "b": {"ansible_user": {"__ansible_unsafe": "u b"}}}},
    "all": {"children": ["ungrouped", "g"]},
    "g": {"hosts": ["a", "c"], "vars": {"ansible_user": "gv"}},
    "old": ["b"],
    "ungrouped": {"hosts": ["d"]},
}  # fmt: skip


def run(path: Path, *arguments: str) -> tuple[Inventory, str]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(path), *arguments], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    parsed = inventory.parse(done.stdout, source="from_ansible", base_dir="/", presets=workloads.read_presets())
    return parsed, done.stderr


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_ini_with_ranges_ports_children_and_vars(tmp_path: Path) -> None:
    """The closest variable wins; a ProxyCommand becomes a jump host; comments and quotes are read as Ansible reads them."""
    fleet, said = run(written(tmp_path, "hosts", INI), "--target", "/data")
    guests = {one.name: one for one in fleet.guests}
    assert list(guests) == ["lone", "www01.example.com", "www02.example.com", "www03.example.com", "db-a", "db-b"]
    assert (guests["lone"].connection.address, guests["lone"].connection.user, guests["lone"].groups) == (
        "10.0.0.9",
        "bench",
        (),
    )
    www, db = guests["www02.example.com"], guests["db-b"]
    assert (www.connection.port, www.connection.user, www.connection.key_files) == (2222, "first last", ("~/.ssh/k",))
    assert (www.groups, www.vm_host, db.connection.user, db.connection.key_files) == (
        ("site", "web"),
        "hv1",
        "site",
        ("/k/own",),
    )
    jump = www.connection.jump
    assert jump is not None
    assert (jump.address, jump.port, jump.user) == ("bastion", 2200, "ops")
    assert {target.path for one in fleet.guests for target in one.targets} == {"/data"}
    assert "w1 is left out: its connection is winrm" in said
    assert "ansible_password left out" in said
    assert "hunter2" not in said


def test_yaml_with_nested_groups_templates_and_vault(tmp_path: Path) -> None:
    """`no` stays a name; simple templates are filled in, clever ones and vault values leave their host out, unseen."""
    fleet, said = run(written(tmp_path, "hosts.yml", YAML))
    guests = {one.name: one for one in fleet.guests}
    assert list(guests) == ["no", "here", "east-08", "east-09", "east-10", "templated", "west2", "deep1"]
    assert guests["here"].connection.transport is TransportKind.LOCAL
    assert guests["templated"].connection.address == "templated.example.com"
    east = guests["east-08"].connection
    assert east.jump is not None
    assert (east.port, east.user, east.jump.address, east.jump.user) == (2222, "bench", "jump.example", "ops")
    west2 = guests["west2"]
    assert (west2.groups, west2.storage, west2.connection.user) == (("west", "deep"), "csv", "deep")
    assert {target.name: target.path for target in west2.targets} == {"data": "/srv", "xfs": "/xfs"}
    assert "clever is left out: its address is a template" in said
    assert "west1 is left out" in said
    assert "6162" not in said
    assert "/var/tmp is used" in said


def test_json_of_ansible_inventory(tmp_path: Path) -> None:
    """As `ansible-inventory --list` and older programs print it; an unsafe text is a text."""
    fleet, said = run(written(tmp_path, "list.json", json.dumps(JSON)), "--target", "/d", "--workload", "mixed")
    guests = {one.name: one for one in fleet.guests}
    assert sorted(guests) == ["a", "b", "c", "d"]
    a = guests["a"].connection
    assert (a.address, a.port, a.user, guests["a"].groups) == ("10.0.0.1", 22022, "gv", ("g",))
    assert (guests["b"].connection.user, said) == ("u b", "")
    assert fleet.workloads[0].name == "mixed-8k-qd1"


def test_variables_beside_the_inventory(tmp_path: Path) -> None:
    """group_vars and host_vars, as files and as directories, for all and for groups that have no other variables."""
    written(tmp_path, "group_vars/all.yml", "ansible_user: all\n")
    written(tmp_path, "group_vars/g/a.yml", "ansible_port: 2201\n")
    written(tmp_path, "host_vars/y.yaml", "ansible_user: own\n")
    fleet, _ = run(written(tmp_path, "hosts.ini", "[g]\nx\ny\n"), "--target", "/d")
    assert [(one.connection.user, one.connection.port) for one in fleet.guests] == [("all", 2201), ("own", 2201)]


def test_every_key_that_a_guest_may_have_is_taken_over() -> None:
    """The program knows nothing of ours, so its list is held against the schema."""
    source = PROGRAM.read_text(encoding="utf-8")
    (keys,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KEYS"
    ]
    assert sorted(keys) == sorted(GuestSettings.model_fields)


def test_nothing_named_calyx_is_dropped_in_silence(tmp_path: Path) -> None:
    """Root and the dead man's time arrive; what no guest has is told once; root for Ansible's tasks is not root here."""
    text = '[g]\nx calyx_become="sudo -n" ansible_become=true\ny ansible_become=true ansible_become_password=hunter2\n'
    text += "[g:vars]\ncalyx_dead_man=30s\ncalyx_vmhost=hv1\ncalyx_colour=red\n"
    fleet, said = run(written(tmp_path, "hosts", text), "--target", "/d")
    x, y = fleet.guests
    assert (x.become, y.become, x.dead_man_s, y.dead_man_s) == (("sudo", "-n"), (), 30.0, 30.0)
    assert said.splitlines() == [
        "from_ansible: 2 hosts, x for one: calyx_colour left out: a guest has no key of that name",
        "from_ansible: 2 hosts, x for one: calyx_vmhost left out: a guest has no key of that name (did you mean calyx_vm_host?)",
        "from_ansible: y: ansible_become_password left out: there are no passwords here, log in by key",
        'from_ansible: y: ansible_become left out: calyx_become="sudo -n" starts the agent as root',
    ]


def test_what_holds_for_many_hosts_is_said_once(tmp_path: Path) -> None:
    """However many they are, and as quickly."""
    text = "[g]\n" + "".join(f"vm{n}\nw{n} ansible_connection=winrm\n" for n in range(4000))
    path = written(tmp_path, "hosts", text + "[g:vars]\nansible_become=true\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(path), "--target", "/d"], capture_output=True, text=True, timeout=30
    )
    assert done.stderr.splitlines() == [
        'from_ansible: 4000 hosts, vm0 for one: ansible_become left out: calyx_become="sudo -n" starts the agent as root',
        "from_ansible: 4000 hosts, w0 for one, are left out: its connection is winrm, not SSH",
    ]
    assert len(json.loads(done.stdout)["guests"]) == 4000
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 3


def test_it_is_a_source_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `calyx-orch run inventories/from_ansible`, told by the environment."""
    monkeypatch.setenv("CALYX_ANSIBLE_INVENTORY", str(written(tmp_path, "hosts", "vm1\nvm2\n")))
    monkeypatch.setenv("CALYX_TARGET", "/data")
    monkeypatch.setenv("CALYX_WORKLOADS", "quick,mixed")
    text, source, base_dir = sources.read(str(PROGRAM))
    fleet = inventory.parse(text, source=source, base_dir=base_dir, presets=workloads.read_presets())
    assert [one.name for one in fleet.guests] == ["vm1", "vm2"]
    assert [one.name for one in fleet.workloads][:2] == ["randread-4k", "seqwrite-1m"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[g\nvm1 x='\n", "cannot read"), ("[a:b]x=1\n[g:nonsense]\n", "no section"), ("all: [\n", "line 2"), ("{", "cannot read"),
        ("w ansible_connection=docker\n", "no host of"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    """Exit code 2 and no traceback."""
    path = written(tmp_path, "hosts", text)
    done = subprocess.run([sys.executable, str(PROGRAM), str(path)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_without_an_inventory_it_says_how_to_name_one() -> None:
    """Exit code 2."""
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=30, env={})
    assert (done.returncode, done.stdout) == (2, "")
    assert "CALYX_ANSIBLE_INVENTORY" in done.stderr
