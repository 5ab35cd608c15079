/* SPDX-License-Identifier: Apache-2.0
 *
 * The command `facts`: what this guest is (docs/protocol.md, facts). What is unknown is null, never a guess.
 */
#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "calyx/text.h"
#include "document.h"
#include "facts.h"
#include "job.h"
#include "place.h"
#include "proc.h"

static const char *const usual_places[] = {"/usr/local/bin", "/usr/local/sbin", "/usr/bin",	"/bin",
					   "/usr/sbin",	     "/sbin",		"/opt/fio/bin", NULL};

void facts_write_text(struct json *json, const char *key, const char *directory, const char *name)
{
	char text[PLACE_TEXT];

	json_text(json, key, place_attribute(directory, name, text) && *text ? text : NULL);
}

void facts_write_number(struct json *json, const char *key, const char *directory, const char *name)
{
	char text[PLACE_TEXT];

	if (!place_attribute(directory, name, text) || !*text)
		json_null(json, key);
	else if (*text == '-')
		json_i64(json, key, -(int64_t)calyx_number(text + 1, NULL));
	else
		json_i64(json, key, (int64_t)calyx_number(text, NULL));
}

static void write_memory(struct json *json)
{
	char text[1024], *line;
	ssize_t length = calyx_read_text("/proc/meminfo", text, sizeof(text));

	line = length > 0 ? calyx_find(text, "MemTotal:") : NULL;
	if (line)
		json_u64(json, "memory_bytes", calyx_number(line + strlen("MemTotal:"), NULL) * 1024);
	else
		json_null(json, "memory_bytes");
}

static void write_huge_pages(struct json *json)
{
	uint64_t page_bytes, free_pages;

	calyx_huge_pages(&page_bytes, &free_pages);
	json_u64(json, "huge_page_bytes", page_bytes);
	json_u64(json, "huge_pages_free", free_pages);
	facts_write_text(json, "numa_nodes", "", "/sys/devices/system/node/online");
}

static void write_clock(struct json *json)
{
	struct calyx_clock clock;

	calyx_clock_measure(&clock);
	facts_write_text(json, "clocksource", "", "/sys/devices/system/clocksource/clocksource0/current_clocksource");
	document_clock(json, "clock", &clock);
}

static void write_cpus(struct json *json)
{
	uint32_t cpus = proc_cpus();

	if (cpus)
		json_u64(json, "cpus", cpus);
	else
		json_null(json, "cpus");
}

static void write_io_uring(struct json *json)
{
	uint32_t setups = 0, features = 0;
	int error = calyx_ring_probe(&setups, &features);
	char disabled[PLACE_TEXT], group[PLACE_TEXT], why[WHY_MAX] = "";

	if (error) {
		bool known = place_attribute("", "/proc/sys/kernel/io_uring_disabled", disabled);
		bool grouped =
			known && *disabled == '1' && place_attribute("", "/proc/sys/kernel/io_uring_group", group);

		calyx_format(why, sizeof(why), "io_uring_setup: %s (%s); kernel.io_uring_disabled is %s%s%s",
			     error == -EPERM	? "EPERM"
			     : error == -ENOSYS ? "ENOSYS"
						: "error",
			     strerror(-error), known ? disabled : "not known to this kernel",
			     grouped ? ", kernel.io_uring_group " : "", grouped ? group : "");
	}
	json_key(json, "io_uring");
	json_object(json);
	json_bool(json, "ok", !error);
	json_text(json, "why", why);
	json_i64(json, "errno", -error);
	json_u64(json, "features", features);
	json_key(json, "setups");
	json_array(json);
	for (unsigned int setup = CALYX_SETUP_SQPOLL; setup <= CALYX_SETUP_PLAIN; setup++)
		if (setups & 1u << setup)
			json_text(json, NULL, job_setup_name((enum calyx_setup)setup));
	json_array_end(json);
	json_object_end(json);
}

static void write_memlock(struct json *json)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
		json_null(json, "memlock_bytes");
	else
		json_u64(json, "memlock_bytes", limit.rlim_cur);
}

static bool is_program(const char *directory, size_t length, const char *name, char path[PATH_MAX])
{
	struct stat status;

	if (!length || calyx_format(path, PATH_MAX, "%.*s/%s", (int)length, directory, name) >= PATH_MAX)
		return false;
	return !access(path, X_OK) && !stat(path, &status) && S_ISREG(status.st_mode);
}

static bool find_program(const struct line *line, const char *name, char path[PATH_MAX])
{
	const char *home = getenv("HOME"), *list = getenv("PATH");
	char local[PATH_MAX];

	if (strchr(name, '/'))
		return calyx_format(path, PATH_MAX, "%s", name) < PATH_MAX && !access(path, X_OK);
	for (size_t i = 0; i < line->count; i++)
		if (!strcmp(line->pairs[i].key, "dir") &&
		    is_program(line->pairs[i].value, strlen(line->pairs[i].value), name, path))
			return true;
	while (list && *list) {
		size_t length = strcspn(list, ":");

		if (is_program(list, length, name, path))
			return true;
		list += length + (list[length] == ':');
	}
	for (int i = 0; usual_places[i]; i++)
		if (is_program(usual_places[i], strlen(usual_places[i]), name, path))
			return true;
	if (home && calyx_format(local, sizeof(local), "%s/.local/bin", home) < PATH_MAX &&
	    is_program(local, strlen(local), name, path))
		return true;
	return is_program("/snap/bin", strlen("/snap/bin"), name, path);
}

static void write_programs(struct json *json, const struct line *line)
{
	char path[PATH_MAX];

	json_key(json, "programs");
	json_array(json);
	for (size_t i = 0; i < line->count; i++) {
		const char *name = line->pairs[i].value;

		if (strcmp(line->pairs[i].key, "program"))
			continue;
		json_object(json);
		json_text(json, "name", name);
		json_text(json, "path", find_program(line, name, path) ? path : NULL);
		json_object_end(json);
	}
	json_array_end(json);
}

static void write_system(struct json *json)
{
	struct utsname name;

	uname(&name);
	json_text(json, "hostname", name.nodename);
	json_text(json, "kernel", name.release);
	facts_write_text(json, "machine_id", "", "/etc/machine-id");
	facts_write_text(json, "boot_id", "", "/proc/sys/kernel/random/boot_id");
	json_text(json, "arch", name.machine);
	write_cpus(json);
	write_memory(json);
	write_huge_pages(json);
	write_clock(json);
	facts_write_virtual(json);
	facts_write_vm_host(json);
	facts_write_number(json, "io_uring_disabled", "", "/proc/sys/kernel/io_uring_disabled");
	write_io_uring(json);
	write_memlock(json);
	json_u64(json, "uid", geteuid());
	json_text(json, "path_env", getenv("PATH"));
}

void work_facts(struct command *command)
{
	const struct line *line = &command->line;
	struct buffer message = {0};
	char why[WHY_MAX];
	struct json json;

	if (line_check(line, "path* program* dir*", why)) {
		command_refuse(command, EINVAL, "%s", why);
		return;
	}
	json = message_begin(&message, "facts");
	write_system(&json);
	json_key(&json, "paths");
	json_array(&json);
	for (size_t i = 0; i < line->count; i++)
		if (!strcmp(line->pairs[i].key, "path"))
			facts_write_path(&json, line->pairs[i].value);
	json_array_end(&json);
	write_programs(&json, line);
	message_end(&json);
	if (message.length > LINE_MAX_BYTES) {
		buffer_free(&message);
		command_refuse(command, EMSGSIZE, "the facts of so many paths do not fit into one line: ask for fewer");
		return;
	}
	command->closing = message;
}
