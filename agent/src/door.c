/* SPDX-License-Identifier: Apache-2.0
 *
 * The second door: see door.h.
 */
#include "door.h"

#include <stdlib.h>

#include "calyx/text.h"
#include "document.h"
#include "job.h"

struct calyx_door {
	struct line line;
	struct job job;
	struct calyx_crew *crew;
	struct buffer document;
};

/* Only an agent guards them. */
static int refuse_devices(const struct calyx_job *job, char *why)
{
	if (job->devices)
		calyx_format(why, CALYX_DOOR_WHY_MAX, "raw devices are used by agents alone");
	return job->devices;
}

struct calyx_door *calyx_door_open(const char *line, size_t length, char *why)
{
	struct calyx_door *door = calloc(1, sizeof(*door));

	if (!door) {
		calyx_format(why, CALYX_DOOR_WHY_MAX, "no memory for a job");
		return NULL;
	}
	if (line_parse(line, length, &door->line, why) || job_parse(&door->line, &door->job, why) ||
	    refuse_devices(&door->job.job, why) || calyx_crew_open(&door->job.job, &door->crew, why)) {
		calyx_door_close(door);
		return NULL;
	}
	return door;
}

int calyx_door_start(struct calyx_door *door, uint64_t start_ns)
{
	return calyx_crew_start(door->crew, start_ns);
}

int calyx_door_wait(struct calyx_door *door, uint64_t timeout_ns)
{
	return calyx_crew_wait(door->crew, timeout_ns);
}

void calyx_door_progress(struct calyx_door *door, struct calyx_progress *progress)
{
	calyx_crew_progress(door->crew, progress);
}

void calyx_door_stop(struct calyx_door *door)
{
	calyx_crew_stop(door->crew);
}

const char *calyx_door_document(struct calyx_door *door, size_t *length)
{
	if (!door->document.length)
		document_write(&door->document, &door->job.job, calyx_crew_result(door->crew));
	*length = door->document.length;
	return door->document.failed ? NULL : door->document.data;
}

const char *calyx_door_failure(struct calyx_door *door)
{
	return calyx_crew_result(door->crew)->failure;
}

void calyx_door_close(struct calyx_door *door)
{
	if (door->crew)
		calyx_crew_close(door->crew);
	job_free(&door->job);
	line_free(&door->line);
	buffer_free(&door->document);
	free(door);
}
