/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading /proc: see proc.h.
 */
#include "proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "calyx/text.h"

#define CPUS_MAX 8192 /* as many as a kernel may have */

uint64_t proc_tick_ns(void)
{
	unsigned long ticks = getauxval(AT_CLKTCK);

	return 1000000000ull / (ticks ? ticks : 100);
}

uint32_t proc_cpus(void)
{
	uint64_t allowed[CPUS_MAX / 64];
	long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(allowed), allowed);
	uint32_t count = 0;

	for (long i = 0; i < bytes / (long)sizeof(*allowed); i++)
		count += (uint32_t)__builtin_popcountll(allowed[i]);
	return count;
}

bool proc_numbers(const char *text, uint64_t *numbers, size_t count)
{
	const char *end;

	for (size_t i = 0; i < count; i++) {
		text += strspn(text, " -"); /* of a process without a terminal one is -1; nobody asks for that */
		numbers[i] = calyx_number(text, &end);
		if (end == text)
			return false;
		text = end;
	}
	return true;
}

uint32_t proc_times(uint64_t times_ns[PROC_TIMES])
{
	uint64_t tick_ns = proc_tick_ns();
	char *table = calyx_read_all("/proc/stat"), *rest = table, *line;
	uint32_t cpus = 0;

	memset(times_ns, 0, PROC_TIMES * sizeof(*times_ns));
	while ((line = calyx_next_line(&rest))) {
		if (!strncmp(line, "cpu ", 4))
			proc_numbers(line + 4, times_ns, PROC_TIMES);
		else if (!strncmp(line, "cpu", 3))
			cpus++;
		else
			break;
	}
	free(table);
	for (int i = 0; i < PROC_TIMES; i++)
		times_ns[i] *= tick_ns;
	return cpus;
}

int proc_stat(pid_t pid, struct proc_stat *stat)
{
	enum {
		PPID,
		USER = 10,
		SYSTEM,
		CHILDREN_USER,
		CHILDREN_SYSTEM,
		FIELDS
	}; /* counted from the one after the state */
	uint64_t numbers[FIELDS], tick_ns = proc_tick_ns();
	char path[40], text[1024], *after;
	ssize_t length;

	calyx_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
	length = calyx_read_text(path, text, sizeof(text));
	if (length < 0)
		return (int)length;
	/* ") S 1 ...": the command's name, in parentheses, may itself hold any character. */
	after = strrchr(text, ')');
	if (!after || after[1] != ' ' || !after[2] || !proc_numbers(after + 3, numbers, FIELDS))
		return -EIO;
	*stat = (struct proc_stat){
		.ppid = (pid_t)numbers[PPID],
		.state = after[2],
		.user_ns = numbers[USER] * tick_ns,
		.system_ns = numbers[SYSTEM] * tick_ns,
		.children_user_ns = numbers[CHILDREN_USER] * tick_ns,
		.children_system_ns = numbers[CHILDREN_SYSTEM] * tick_ns,
	};
	return 0;
}

struct kin {
	pid_t pid, ppid;
	bool zombie, ours;
};

static struct kin *list_processes(size_t *count)
{
	size_t capacity = 256, length = 0;
	struct kin *list = calloc(capacity, sizeof(*list)), *larger;
	DIR *directory = opendir("/proc");
	struct dirent *entry;
	struct proc_stat stat;

	while (list && directory && (entry = readdir(directory))) {
		pid_t pid = (pid_t)calyx_number(entry->d_name, NULL);

		if (!isdigit((unsigned char)entry->d_name[0]) || proc_stat(pid, &stat))
			continue;
		if (length == capacity) {
			larger = realloc(list, 2 * capacity * sizeof(*list));
			if (!larger)
				break;
			list = larger;
			capacity *= 2;
		}
		list[length++] = (struct kin){.pid = pid, .ppid = stat.ppid, .zombie = stat.state == 'Z'};
	}
	if (directory)
		closedir(directory);
	*count = length;
	return list;
}

size_t proc_descendants(pid_t root, bool living, pid_t *pids, size_t max)
{
	size_t count, found = 0;
	struct kin *list = list_processes(&count);
	bool more = list != NULL;

	/* Grows the set of ours by one generation a turn: a child may be listed before its parent. */
	while (more) {
		more = false;
		for (size_t i = 0; i < count; i++) {
			bool child = list[i].ppid == root;

			for (size_t k = 0; k < count && !child; k++)
				child = list[k].ours && list[k].pid == list[i].ppid;
			if (!child || list[i].ours)
				continue;
			list[i].ours = more = true;
			if (found < max && !(living && list[i].zombie))
				pids[found++] = list[i].pid;
		}
	}
	free(list);
	return found;
}

bool proc_io_bytes(pid_t pid, uint64_t *bytes)
{
	char path[40], text[512], *read_line, *write_line;

	calyx_format(path, sizeof(path), "/proc/%d/io", (int)pid);
	if (calyx_read_text(path, text, sizeof(text)) <= 0)
		return false;
	read_line = calyx_find(text, "\nread_bytes: ");
	write_line = calyx_find(text, "\nwrite_bytes: ");
	if (!read_line || !write_line)
		return false;
	*bytes = calyx_number(read_line + 13, NULL) + calyx_number(write_line + 14, NULL);
	return true;
}

bool proc_cpu_ns(pid_t pid, uint64_t *ns)
{
	struct timespec time;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &time))
		return false;
	*ns = (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
	return true;
}

/* "cpu0 0 0 0 0 0 0 RAN WAITED TIMES", a line a CPU, among lines of other kinds. */
bool proc_schedstat(const char *path, uint64_t *ran_ns, uint64_t *waited_ns)
{
	char *table = calyx_read_all(path), *rest = table, *line;
	uint64_t fields[8], ran = 0, waited = 0;
	bool found = false;

	while ((line = calyx_next_line(&rest))) {
		if (strncmp(line, "cpu", 3) || !proc_numbers(line + strcspn(line, " "), fields, 8))
			continue;
		ran += fields[6];
		waited += fields[7];
		found = true;
	}
	free(table);
	if (found) {
		*ran_ns = ran;
		*waited_ns = waited;
	}
	return found;
}
