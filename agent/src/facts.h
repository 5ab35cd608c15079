/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the `facts` message.
 */
#ifndef CALYX_AGENT_FACTS_H
#define CALYX_AGENT_FACTS_H

#include "json.h"

/* The fields `hypervisor`, `product` and `virtual` (virtual.c). */
void facts_write_virtual(struct json *json);
/* The fields `cpu_model` and `vm_host` (vm_host.c). */
void facts_write_vm_host(struct json *json);
/* What a small file below a directory of /sys says; null when it is not there. */
void facts_write_text(struct json *json, const char *key, const char *directory, const char *name);
void facts_write_number(struct json *json, const char *key, const char *directory, const char *name);
/* One object of `paths` (paths.c). */
void facts_write_path(struct json *json, const char *path);

#endif
