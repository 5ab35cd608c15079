// Does every result tell what a read of its clock costs, how fine it is, and whether the kernel reads the TSC for it?
#include "check.h"

#define SIZE (1ull << 20)
#define READS 2000

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_clock clock;
	struct calyx_crew *crew;
	uint64_t began_ns, took_ns, last_ns, now_ns;
	char source[64] = "";
	FILE *file;

	began_ns = last_ns = calyx_now_ns();
	for (int i = 0; i < READS; i++) {
		now_ns = calyx_now_ns();
		CHECK(now_ns >= last_ns, "it goes backwards");
		last_ns = now_ns;
	}
	took_ns = (last_ns - began_ns) / READS;
	calyx_clock_measure(&clock);
	CHECK(clock.cost_ns > 0 && clock.cost_ns <= took_ns + took_ns / 2 + 1,
	      "cost %" PRIu64 " ns, by this loop %" PRIu64, clock.cost_ns, took_ns);
	CHECK(clock.resolution_ns > 0 && clock.resolution_ns < 100 * MS, "resolution %" PRIu64, clock.resolution_ns);
	file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
	if (file) {
		CHECK(fgets(source, sizeof(source), file) != NULL, "clocksource");
		fclose(file);
		CHECK(clock.tsc == (!strncmp(source, "tsc", 3) || !strncmp(source, "hyperv_clocksource_tsc_page", 27)),
		      "clocksource %s", source);
	}
	scratch_make();
	lay_out(1, SIZE);
	job.runtime_ns = 20 * MS;
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->clock.cost_ns > 0 && result->clock.resolution_ns > 0, "in the result");
	calyx_crew_close(crew);
	return 0;
}
