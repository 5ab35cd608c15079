/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate: see barrier.h.
 */
#include "barrier.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "calyx/text.h"
#include "moment.h"
#include "proc.h"

#define GATE_MAGIC 0x31657461676c6163ull /* "calgate1" */
/* A waiter sleeps until this long before the start and spins the rest: a timer wakes late by up to about 60 us. */
#define SPIN_NS 150000ull
#define LOOK_NS 250000000ull /* how often a waiter looks whether its agent still lives */

enum gate_state { GATE_CLOSED, GATE_OPEN, GATE_ABORTED };

struct gate_page {
	uint64_t magic;
	_Atomic uint64_t start_ns, released_ns;
	_Atomic uint32_t arrived, state;
	pid_t agent;
};

static void futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
	struct timespec timeout = moment_timespec(timeout_ns);

	syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

static void futex_wake(const _Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int gate_create(struct gate *gate, const char *path)
{
	struct gate made = {0};
	int fd, error;

	if (calyx_format(made.path, sizeof(made.path), "%s", path) >= (int)sizeof(made.path))
		return -ENAMETOOLONG;
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* Written, not only sized: a full file system is to say so here, and not by SIGBUS later. */
	if (write(fd, &(struct gate_page){.magic = GATE_MAGIC, .agent = getpid()}, sizeof(struct gate_page)) !=
	    sizeof(struct gate_page)) {
		error = errno ? -errno : -EIO;
		goto fail;
	}
	made.page = mmap(NULL, sizeof(*made.page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (made.page == MAP_FAILED) {
		error = -errno;
		goto fail;
	}
	close(fd);
	*gate = made;
	return 0;
fail:
	close(fd);
	unlink(path);
	return error;
}

uint32_t gate_arrived(const struct gate *gate)
{
	return atomic_load(&gate->page->arrived);
}

void gate_wait_arrival(const struct gate *gate, uint32_t seen, uint64_t timeout_ns)
{
	futex_wait(&gate->page->arrived, seen, timeout_ns);
}

void gate_open(struct gate *gate, uint64_t start_ns)
{
	atomic_store(&gate->page->start_ns, start_ns);
	atomic_store(&gate->page->state, GATE_OPEN);
	futex_wake(&gate->page->state);
}

void gate_abort(struct gate *gate)
{
	atomic_store(&gate->page->state, GATE_ABORTED);
	futex_wake(&gate->page->state);
}

uint64_t gate_released_ns(const struct gate *gate)
{
	return atomic_load(&gate->page->released_ns);
}

void gate_close(struct gate *gate)
{
	if (!gate->page)
		return;
	munmap(gate->page, sizeof(*gate->page));
	unlink(gate->path);
	gate->page = NULL;
}

/* Is the agent that made the gate gone? It removes the file at its end; when it was killed its process is missing. */
static bool is_orphaned(int fd, const struct gate_page *page)
{
	struct stat status;
	char path[32];

	if (fstat(fd, &status) || !status.st_nlink)
		return true;
	calyx_format(path, sizeof(path), "/proc/%d", (int)page->agent);
	return access(path, F_OK) != 0;
}

/* More waiters than CPUs must not spin: they would keep each other, and the agent, from running at the start line. */
static void wait_until(uint64_t start_ns, uint32_t waiters)
{
	if (waiters > proc_cpus()) {
		moment_sleep_until(start_ns);
		return;
	}
	moment_sleep_until(start_ns - SPIN_NS);
	while (moment_now_ns() < start_ns)
		;
}

int gate_wait_main(int argc, char **argv)
{
	struct gate_page *page;
	struct stat status;
	uint64_t released_ns, last_ns;
	int fd;

	if (argc != 3 || strncmp(argv[2], "gate=", 5)) {
		calyx_say(STDERR_FILENO, "usage: calyx-agent wait gate=FILE\n");
		return 2;
	}
	fd = open(argv[2] + 5, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) || status.st_size < (off_t)sizeof(*page)) {
		calyx_say(STDERR_FILENO, "calyx-agent: no gate at %s: %s\n", argv[2] + 5,
			  strerror(fd < 0 ? errno : EINVAL));
		return 2;
	}
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED || page->magic != GATE_MAGIC) {
		calyx_say(STDERR_FILENO, "calyx-agent: %s is no gate\n", argv[2] + 5);
		return 2;
	}
	moment_fine_timers();
	atomic_fetch_add(&page->arrived, 1);
	futex_wake(&page->arrived);
	while (atomic_load(&page->state) == GATE_CLOSED) {
		futex_wait(&page->state, GATE_CLOSED, LOOK_NS);
		if (is_orphaned(fd, page))
			return 1;
	}
	if (atomic_load(&page->state) != GATE_OPEN)
		return 1;
	wait_until(atomic_load(&page->start_ns), atomic_load(&page->arrived));
	released_ns = moment_now_ns();
	last_ns = atomic_load(&page->released_ns);
	while (last_ns < released_ns && !atomic_compare_exchange_weak(&page->released_ns, &last_ns, released_ns))
		;
	return 0;
}
