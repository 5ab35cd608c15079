"""The inventory that `calyx-orch init` writes: short enough to read, with the next keys to try as comments."""

FIRST_INVENTORY = """\
# Who is measured, how they are reached, and what is measured. Look at it before it runs:
#   calyx-orch run inventory.yaml --dry-run
# Every key is explained in docs/inventory.md.
name: first

defaults:                      # hold for every guest; each guest can say otherwise
  user: bench
  # port: 22
  # key: ~/.ssh/id_ed25519     # default: your SSH agent and the usual key files
  # jump: admin@bastion:22     # through another machine
  # host_key_policy: accept-new  # record unknown host keys at first sight; default: strict
  targets:                     # directories in which the files of the I/O are made, and removed afterwards
    data: /var/tmp

vm_hosts:                      # the machines the guests run on: guests of one are compared with each other
  hv1: {free: 200GiB}          # free space for new files; undeclared: 64 GiB

# storage:                     # pools that guests of several vm_hosts share
#   csv1: {free: 1TiB}

guests:
  vm1: {vm_host: hv1, address: 192.0.2.11}
  vm2: {vm_host: hv1, address: 192.0.2.12}
  # hv1-vm[03:16]: {vm_host: hv1}      # fourteen guests, their names being their addresses

workloads:
  - quick                      # presets: quick, four-corners, mixed, paper
  # - {name: oltp, rw: randrw, rwmixread: 70, bs: 8k, iodepth: [1, 8, 32], size: 4GiB}   # a list gives one workload each

# baselines: auto              # fio beside calyx where a guest has it; none, or [fio-io_uring, fio-libaio] to require it
# repetitions: 3
# load: [together, alone]      # tells capacity from interference
# impact: {max_rate: 200MB/s, max_guests_per_domain: 4}   # spare the neighbours
"""
