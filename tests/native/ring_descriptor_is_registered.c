// Is the ring's descriptor registered, used by every enter and given back, and done without where the kernel is older?
#include <linux/io_uring.h>
#include <stdatomic.h>

#include "check.h"
#include "ring.h"

#define SIZE (1ull << 20)

static struct calyx_sys table;
static atomic_int registered, unregistered, plain_enters, registered_enters;
static bool old_kernel;

static int watching_register(int fd, uint32_t opcode, const void *argument, uint32_t count)
{
	int answer;

	if (opcode == CALYX_REGISTER_RING_FDS && old_kernel)
		return -EINVAL;
	answer = calyx_sys_linux.io_uring_register(fd, opcode, argument, count);
	if (opcode == CALYX_REGISTER_RING_FDS && answer == 1)
		atomic_fetch_add(&registered, 1);
	if (opcode == CALYX_UNREGISTER_RING_FDS && answer == 1)
		atomic_fetch_add(&unregistered, 1);
	return answer;
}

static int watching_enter(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags)
{
	atomic_fetch_add(flags & IORING_ENTER_REGISTERED_RING ? &registered_enters : &plain_enters, 1);
	return calyx_sys_linux.io_uring_enter(fd, to_submit, min_complete, flags);
}

static bool run(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	bool taken;

	job.runtime_ns = 100 * MS;
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0 && result->submitted > 0, "%s", result->failure);
	taken = result->setup.ring_fd;
	calyx_crew_close(crew);
	return taken;
}

int main(void)
{
	scratch_make();
	lay_out(1, SIZE);
	table = calyx_sys_linux;
	table.io_uring_register = watching_register;
	table.io_uring_enter = watching_enter;
	calyx_sys = &table;

	if (run()) {
		CHECK(atomic_load(&registered) == 1 && atomic_load(&unregistered) == 1, "registered %d, given back %d",
		      atomic_load(&registered), atomic_load(&unregistered));
		CHECK(atomic_load(&plain_enters) == 0 && atomic_load(&registered_enters) > 0, "%d enters without it",
		      atomic_load(&plain_enters));
	}
	old_kernel = true;
	atomic_store(&registered_enters, 0);
	CHECK(!run(), "the result says that it was not had");
	CHECK(atomic_load(&registered_enters) == 0 && atomic_load(&plain_enters) > 0, "plain enters");
	return 0;
}
