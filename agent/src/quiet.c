/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands around a round: `settle` waits until a device is idle, `lost` measures the time that steal hides.
 */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calyx/text.h"
#include "moment.h"
#include "place.h"
#include "proc.h"

#define IDLE_NS (200 * MS_NS)
#define LOOK_NS (20 * MS_NS)
#define GAP_NS 20000ull
#define LOOK_TURNS 4096 /* of the spin, between looks for a stop */
#define TIMEOUT_MS 60000
#define TIMEOUT_MAX_MS (24 * 3600 * 1000ull)
#define SPIN_MAX_MS 60000

/* Pages under writeback anywhere on the guest; 0 when the kernel does not say. */
static uint64_t writeback_pages(void)
{
	char text[16384], *line;

	if (calyx_read_text("/proc/vmstat", text, sizeof(text)) <= 0)
		return 0;
	line = calyx_find(text, "\nnr_writeback ");
	return line ? calyx_number(line + strlen("\nnr_writeback "), NULL) : 0;
}

static bool is_idle(const char *disk)
{
	char text[PLACE_TEXT];
	uint64_t reads_and_writes[2];

	if (writeback_pages())
		return false;
	if (!*disk || !place_attribute(disk, "inflight", text) || !proc_numbers(text, reads_and_writes, 2))
		return true;
	return !reads_and_writes[0] && !reads_and_writes[1];
}

/* syncfs cannot be interrupted and may take minutes, so a thread of its own does it; whoever lets go last frees this.
 */
struct flush {
	int fd;
	_Atomic bool done;
	_Atomic int holders;
};

static void flush_release(struct flush *flush)
{
	if (atomic_fetch_sub(&flush->holders, 1) > 1)
		return;
	close(flush->fd);
	free(flush);
}

static void *flush_thread(void *argument)
{
	struct flush *flush = argument;
	struct stat status;

	if (fstat(flush->fd, &status) || !S_ISBLK(status.st_mode))
		syncfs(flush->fd);
	else
		fsync(flush->fd); /* its node lies on another file system */
	atomic_store(&flush->done, true);
	flush_release(flush);
	return NULL;
}

/* Begins to write out what is dirty, so that it is not written in the middle of the next round. NULL and -errno in
 * *error. */
static struct flush *flush_begin(const char *path, int *error)
{
	struct flush *flush = calloc(1, sizeof(*flush));
	pthread_t thread;

	if (!flush) {
		*error = -ENOMEM;
		return NULL;
	}
	atomic_store(&flush->holders, 2);
	flush->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	*error = flush->fd < 0 ? -errno : -pthread_create(&thread, NULL, flush_thread, flush);
	if (*error) {
		if (flush->fd >= 0)
			close(flush->fd);
		free(flush);
		return NULL;
	}
	pthread_detach(thread);
	return flush;
}

static bool wait_until_idle(struct command *command, const char *disk, const struct flush *flush, uint64_t end_ns)
{
	uint64_t idle_since_ns = 0, now_ns;
	unsigned int seen = 0;

	while ((now_ns = moment_now_ns()) < end_ns && !command_stopped(command)) {
		if (!atomic_load(&flush->done) || !is_idle(disk))
			idle_since_ns = 0;
		else if (!idle_since_ns)
			idle_since_ns = now_ns;
		if (idle_since_ns && now_ns - idle_since_ns >= IDLE_NS)
			return true;
		command_sleep(command, &seen, now_ns + LOOK_NS);
	}
	return false;
}

static void settle(struct command *command, const char *path, uint64_t timeout_ms)
{
	struct device device;
	char why[WHY_MAX];
	uint64_t began_ns = moment_now_ns();
	char disk[PATH_MAX];
	struct flush *flush;
	struct json json;
	bool idle;
	int error;

	if (!strncmp(path, DEVICE_SERIAL, strlen(DEVICE_SERIAL)) && !device_find(path, &device, why))
		path = device.node;
	if (!place_disk(path, disk))
		disk[0] = 0;
	flush = flush_begin(path, &error);
	if (!flush) {
		command_refuse(command, error, "cannot open %.300s: %s", path, strerror(-error));
		return;
	}
	idle = wait_until_idle(command, disk, flush, began_ns + timeout_ms * MS_NS);
	flush_release(flush);
	json = message_begin(&command->closing, "settled");
	json_bool(&json, "idle", idle);
	json_u64(&json, "waited_ns", moment_now_ns() - began_ns);
	message_end(&json);
}

void work_settle(struct command *command)
{
	uint64_t timeout_ms;
	char why[WHY_MAX];

	if (line_check(&command->line, "path timeout_ms", why) ||
	    line_number(&command->line, "timeout_ms", TIMEOUT_MS, TIMEOUT_MAX_MS, &timeout_ms, why))
		command_refuse(command, EINVAL, "%s", why);
	else if (!line_get(&command->line, "path"))
		command_refuse(command, EINVAL, "'settle' needs path=");
	else
		settle(command, line_get(&command->line, "path"), timeout_ms);
}

static void spin(struct command *command, uint64_t spin_ms)
{
	uint64_t began_ns = moment_now_ns(), end_ns = began_ns + spin_ms * MS_NS, last_ns = began_ns, now_ns;
	uint64_t lost_ns = 0, gap_max_ns = 0, gaps = 0;
	struct json json;

	for (uint64_t turns = 1;; turns++) {
		uint64_t gap_ns;

		now_ns = moment_now_ns();
		gap_ns = now_ns - last_ns;
		last_ns = now_ns;
		if (gap_ns > GAP_NS) {
			gaps++;
			lost_ns += gap_ns;
			gap_max_ns = gap_ns > gap_max_ns ? gap_ns : gap_max_ns;
		}
		if (now_ns >= end_ns || (turns % LOOK_TURNS == 0 && command_stopped(command)))
			break;
	}
	json = message_begin(&command->closing, "lost");
	json_u64(&json, "spin_ns", now_ns - began_ns);
	json_u64(&json, "lost_ns", lost_ns);
	json_u64(&json, "gaps", gaps);
	json_u64(&json, "gap_max_ns", gap_max_ns);
	message_end(&json);
}

void work_lost(struct command *command)
{
	uint64_t spin_ms;
	char why[WHY_MAX];
	cpu_set_t one;
	int cpu = sched_getcpu();

	if (line_check(&command->line, "spin_ms", why) ||
	    line_number(&command->line, "spin_ms", 1000, SPIN_MAX_MS, &spin_ms, why)) {
		command_refuse(command, EINVAL, "%s", why);
		return;
	}
	/* A move to another CPU would look like lost time; this thread ends with the command, so the binding does too.
	 */
	CPU_ZERO(&one);
	if (cpu >= 0) {
		CPU_SET((size_t)cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
	}
	spin(command, spin_ms);
}
