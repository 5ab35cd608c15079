/* SPDX-License-Identifier: Apache-2.0
 *
 * What the hypervisor says of itself to this guest: the name of its host, and the model of the CPUs it shows.
 *
 *   kvp      Hyper-V's key-value pool: records of a key and a value, both padded with zeros to their full size
 *   smbios   an OEM string (type 11) `calyx.host=NAME`, which an administrator of KVM sets; only root may read it
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "calyx/text.h"
#include "facts.h"

#define POOL "/var/lib/hyperv/.kvp_pool_3" /* what the host writes of itself */
#define POOL_KEY "PhysicalHostNameFullyQualified"
#define OEM_KEY "calyx.host="

enum {
	KEY_SIZE = 512,
	VALUE_SIZE = 2048,
	RECORDS_MAX = 1024,
	OEM_TABLES_MAX = 4,
};

static bool pool_value(char value[VALUE_SIZE])
{
	char record[KEY_SIZE + VALUE_SIZE];
	int fd = open(POOL, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool found = false;

	for (int n = 0; fd >= 0 && !found && n < RECORDS_MAX; n++) {
		if (read(fd, record, sizeof(record)) != (ssize_t)sizeof(record))
			break;
		found = !strncmp(record, POOL_KEY, KEY_SIZE);
	}
	if (fd >= 0)
		close(fd);
	if (found) {
		memcpy(value, record + KEY_SIZE, VALUE_SIZE);
		value[VALUE_SIZE - 1] = 0;
	}
	return found && *value;
}

/* A structure of SMBIOS: its formatted part, whose length is its second byte, then strings up to an empty one. */
static bool oem_value(char value[VALUE_SIZE])
{
	char path[64];

	for (int n = 0; n < OEM_TABLES_MAX; n++) {
		ssize_t length, at;

		calyx_format(path, sizeof(path), "/sys/firmware/dmi/entries/11-%d/raw", n);
		length = calyx_read_text(path, value, VALUE_SIZE);
		for (at = length > 1 ? (unsigned char)value[1] : length; at < length && value[at];
		     at += (ssize_t)strlen(value + at) + 1)
			if (!strncmp(value + at, OEM_KEY, strlen(OEM_KEY))) {
				memmove(value, value + at + strlen(OEM_KEY), strlen(value + at + strlen(OEM_KEY)) + 1);
				return *value;
			}
	}
	return false;
}

static void write_cpu_model(struct json *json)
{
	char text[2048], *line, *rest = text;

	if (calyx_read_text("/proc/cpuinfo", text, sizeof(text)) > 0)
		while ((line = calyx_next_line(&rest))) {
			char *colon = strchr(line, ':');

			if (colon && !strncmp(line, "model name", strlen("model name"))) {
				json_text(json, "cpu_model", colon + 1 + strspn(colon + 1, " "));
				return;
			}
		}
	json_null(json, "cpu_model");
}

void facts_write_vm_host(struct json *json)
{
	char value[VALUE_SIZE];

	write_cpu_model(json);
	json_key(json, "vm_host");
	json_object(json);
	json_text(json, "kvp", pool_value(value) ? value : NULL);
	json_text(json, "smbios", oem_value(value) ? value : NULL);
	json_object_end(json);
}
