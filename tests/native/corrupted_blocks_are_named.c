// With verify=crc32c, is a flipped byte, a block in the wrong place and a lost write found and named by its offset, and
// nothing else?
#include "check.h"
#include "crc32c.h"
#include "verify.h"

#define SIZE (1ull << 20)

static struct calyx_job verified_job(enum calyx_rw rw)
{
	struct calyx_job job = short_job(SIZE);

	job.rw = rw;
	job.verify = true;
	return job;
}

static void lay_out_verified(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout;

	unlink(scratch_files[0]);
	CHECK(calyx_target_layout_verified(scratch_files[0], SIZE, 1, 0, NULL, NULL, &layout, reason) == 0, "%s",
	      reason);
}

/* Writes into the file behind the engine's back. */
static void poke(uint64_t offset, const void *data, size_t length)
{
	int fd = open(scratch_files[0], O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 && pwrite(fd, data, length, (off_t)offset) == (ssize_t)length && fsync(fd) == 0, "poke");
	close(fd);
}

static void peek(uint64_t offset, void *data, size_t length)
{
	int fd = open(scratch_files[0], O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && pread(fd, data, length, (off_t)offset) == (ssize_t)length, "peek");
	close(fd);
}

static bool is_named(const struct calyx_verified *found, uint64_t offset, enum calyx_bad why)
{
	for (uint32_t i = 0; i < found->first_bad_count; i++) {
		if (found->first_bad[i].offset == offset && found->first_bad[i].why == why)
			return true;
	}
	return false;
}

/* A clean run of any pattern finds nothing, and checks each block that is read. */
static void check_clean(enum calyx_rw rw, uint64_t bs)
{
	struct calyx_job job = verified_job(rw);
	const struct calyx_result *result;
	struct calyx_progress progress;
	struct calyx_crew *crew;

	job.bs = bs;
	crew = open_crew(&job);
	result = run_to_end(crew);
	calyx_crew_progress(crew, &progress);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(result->verified.bad == 0 && result->errors_count == 0, "%" PRIu64 " bad blocks", result->verified.bad);
	CHECK(result->verified.checked * 4096 >= result->directions[CALYX_DIR_READ].bytes, "%" PRIu64 " blocks checked",
	      result->verified.checked);
	CHECK(rw != CALYX_READ || result->verified.checked * 4096 == progress.bytes, "each block that was read");
	calyx_crew_close(crew);
}

static void check_corrupted(void)
{
	struct calyx_job job = verified_job(CALYX_READ);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	unsigned char block[4096], byte;

	lay_out_verified();
	peek(40960 + 3000, &byte, 1);
	byte ^= 0x10;
	poke(40960 + 3000, &byte, 1);
	peek(8192, block, sizeof(block));
	poke(81920, block, sizeof(block));
	job.bs = 16384;
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(is_named(&result->verified, 40960, CALYX_BAD_CRC), "the flipped byte");
	CHECK(is_named(&result->verified, 81920, CALYX_BAD_OFFSET), "the block of another place");
	for (uint32_t i = 0; i < result->verified.first_bad_count; i++)
		CHECK(result->verified.first_bad[i].offset == 40960 || result->verified.first_bad[i].offset == 81920,
		      "%" PRIu64 " is good", result->verified.first_bad[i].offset);
	CHECK(result->errors_count == 1 && result->errors[0].error == EILSEQ &&
		      result->errors[0].count == result->verified.bad,
	      "a read of bad blocks is an error");
	CHECK(result->directions[CALYX_DIR_READ].latency.count == result->directions[CALYX_DIR_READ].ios,
	      "and not among the good ones");
	calyx_crew_close(crew);
}

/* Generations, step by step: only what is certain is asked. */
static void check_generations(void)
{
	static unsigned char old[8192], new[8192];
	struct calyx_job job = verified_job(CALYX_RANDRW);
	struct calyx_verify verify;
	uint32_t first, second;
	bool certain;

	CHECK(calyx_verify_init(&verify, &job, 0) == 0, "init");
	first = calyx_verify_begin_write(&verify, old, 8192, 4096, 9);
	CHECK(!calyx_verify_begin_read(&verify, 4096, 8192), "a write is in flight");
	CHECK(calyx_verify_begin_read(&verify, 4096, 12288), "but not there");
	calyx_verify_end_write(&verify, 8192, 4096, first, true);
	certain = calyx_verify_begin_read(&verify, 8192, 4096);
	CHECK(certain && calyx_verify_end_read(&verify, old, 8192, 4096, first, certain) == 0,
	      "what was written is there");

	second = calyx_verify_begin_write(&verify, new, 8192, 4096, 9);
	/* A read from before that write may still see the old blocks. */
	CHECK(calyx_verify_end_read(&verify, old, 8192, 4096, first, true) == 0, "a write is in flight");
	calyx_verify_end_write(&verify, 8192, 4096, second, true);
	CHECK(calyx_verify_end_read(&verify, old, 8192, 4096, first, true) == 0, "the read came before the write");
	CHECK(calyx_verify_end_read(&verify, new, 8192, 4096, second, true) == 0, "the new blocks");
	CHECK(calyx_verify_end_read(&verify, old, 8192, 4096, second, true) == 2, "the write was lost");
	CHECK(verify.found.first_bad[0].offset == 4096 && verify.found.first_bad[0].why == CALYX_BAD_GENERATION &&
		      verify.found.first_bad[1].offset == 8192,
	      "both blocks are named");

	/* Two writes at once land in any order: nothing is certain until the next one alone. */
	first = calyx_verify_begin_write(&verify, old, 4096, 4096, 9);
	second = calyx_verify_begin_write(&verify, new, 4096, 4096, 9);
	calyx_verify_end_write(&verify, 4096, 4096, second, true);
	calyx_verify_end_write(&verify, 4096, 4096, first, true);
	CHECK(calyx_verify_end_read(&verify, old, 4096, 4096, second, true) == 0 &&
		      calyx_verify_end_read(&verify, new, 4096, 4096, second, true) == 0,
	      "either may be there");
	/* A failed write leaves either, too. */
	first = calyx_verify_begin_write(&verify, old, 4096, 4096, 9);
	calyx_verify_end_write(&verify, 4096, 4096, first, false);
	CHECK(calyx_verify_end_read(&verify, new, 4096, 4096, first, true) == 0, "a failed write");
	calyx_verify_free(&verify);
}

static void check_refusal(void)
{
	struct calyx_job job = verified_job(CALYX_READ);
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	unlink(scratch_files[0]);
	lay_out(1, SIZE);
	CHECK(calyx_crew_open(&job, &crew, reason) == -EINVAL && strstr(reason, "no block has a header"), "%s", reason);
}

int main(void)
{
	scratch_make();
	calyx_crc32c_init();
	check_generations();
	lay_out_verified();
	check_clean(CALYX_READ, 65536);
	check_clean(CALYX_RANDREAD, 4096);
	check_clean(CALYX_RANDRW, 4096);
	check_clean(CALYX_RW, 16384);
	check_clean(CALYX_RANDWRITE, 8192);
	check_clean(CALYX_READ, 4096);
	check_corrupted();
	check_refusal();
	return 0;
}
