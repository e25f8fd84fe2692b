/* A remote on 3FS, by a stand-in for its library that delays, reorders, fails and lies. */
#include "tests/unit/remote_loop.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/hf3fs_leaks.h"
#include "tests/unit/hf3fs_stand_in.h"

struct mounted {
	struct loop loop;
	char path[64], address[80];
};

enum { BLOB_BYTES = 200000, MANY = 96 };

static void blob_path(const struct mounted *mounted, uint8_t blob, char ret[256])
{
	const uint8_t digest[DIGEST_BYTES] = { blob };
	char hex[DIGEST_HEX_BYTES];

	digest_hex(digest, hex);
	(void)snprintf(ret, 256, "%s/blobs/sha256/%s", mounted->path, hex);
}

static void blob_make(const struct mounted *mounted, uint8_t blob)
{
	uint8_t contents[BLOB_BYTES];
	char path[256];

	for (uint32_t i = 0; i < BLOB_BYTES; i++)
		contents[i] = blob_byte(blob, i);
	blob_path(mounted, blob, path);
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, contents, BLOB_BYTES), BLOB_BYTES);
}

static struct mounted *mounted_new(uint32_t timeout_s)
{
	struct mounted *mounted = calloc(1, sizeof *mounted);
	char path[96];

	cr_assert(mounted);
	(void)snprintf(mounted->path, sizeof mounted->path, "/tmp/dsec-3fs-XXXXXX");
	cr_assert(mkdtemp(mounted->path));
	(void)snprintf(mounted->address, sizeof mounted->address, "3fs:%s", mounted->path);
	(void)snprintf(path, sizeof path, "%s/blobs", mounted->path);
	cr_assert_eq(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof path, "%s/blobs/sha256", mounted->path);
	cr_assert_eq(mkdir(path, 0700), 0);
	mounted->loop.config.remote_timeout_s = timeout_s;
	loop_open(&mounted->loop, mounted->address);
	return mounted;
}

static void mounted_free(struct mounted *mounted)
{
	char path[256];

	loop_close(&mounted->loop);
	for (unsigned blob = 0; blob < 256; blob++) {
		blob_path(mounted, (uint8_t)blob, path);
		(void)unlink(path);
	}
	(void)snprintf(path, sizeof path, "%s/blobs/sha256", mounted->path);
	(void)rmdir(path);
	(void)snprintf(path, sizeof path, "%s/blobs", mounted->path);
	(void)rmdir(path);
	(void)rmdir(mounted->path);
	free(mounted);
}

static int mounted_ask(struct mounted *mounted, struct asked *asked, uint8_t blob, uint64_t offset)
{
	asked->read.blob[0] = blob;
	return ask_and_wait(&mounted->loop, asked, offset, 65536);
}

Test(remote_3fs, completions_in_any_order_reach_the_reads_that_they_are_of)
{
	struct mounted *mounted = mounted_new(0);
	struct asked *asked = calloc(MANY, sizeof *asked);

	cr_assert(asked);
	for (uint8_t blob = 0x20; blob < 0x20 + MANY; blob++)
		blob_make(mounted, blob);
	for (unsigned i = 0; i < MANY; i++) {
		asked[i].read.blob[0] = (uint8_t)(0x20 + i * 7 % MANY);
		ask(&mounted->loop, &asked[i], i * 2000, 65536);
	}
	loop_until(&mounted->loop, asked, MANY);
	for (unsigned i = 0; i < MANY; i++) {
		const uint32_t left = BLOB_BYTES - i * 2000;

		assert_read(&asked[i], left < 65536 ? left : 65536);
		free(asked[i].read.buffer);
	}
	free(asked);
	mounted_free(mounted);
}

Test(remote_3fs, failures_and_lies_are_errors_and_the_next_read_is_as_if_nothing_had_been)
{
	static const struct {
		uint8_t blob;
		int error;
	} rows[] = {
		{ USRBIO_FAILS, -EREMOTEIO }, { USRBIO_SAYS_MORE, -EIO },
		{ USRBIO_REFUSES, -EAGAIN },  { 0x77, -ENOENT },
		{ USRBIO_TWICE, 65536 },      { USRBIO_ANOTHER, 65536 },
	};
	struct mounted *mounted = mounted_new(0);
	struct asked asked = { 0 };

	blob_make(mounted, USRBIO_READS);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (rows[i].error != -ENOENT)
			blob_make(mounted, rows[i].blob);
		cr_expect_eq(mounted_ask(mounted, &asked, rows[i].blob, 0), rows[i].error,
			     "row %zu: %d", i, asked.result);
		cr_assert_eq(mounted_ask(mounted, &asked, USRBIO_READS, 1000), 65536);
		assert_read(&asked, 65536);
	}
	cr_assert_eq(mounted_ask(mounted, &asked, USRBIO_READS, BLOB_BYTES - 5), 5);
	cr_assert_eq(mounted_ask(mounted, &asked, USRBIO_READS, BLOB_BYTES), 0);
	blob_make(mounted, 0x77);
	cr_assert_eq(mounted_ask(mounted, &asked, 0x77, 0), 65536, "it is there now");
	free(asked.read.buffer);
	mounted_free(mounted);
}

Test(remote_3fs, what_never_completes_ends_in_time_and_others_are_read_meanwhile)
{
	struct mounted *mounted = mounted_new(1);
	struct asked asked[8] = { 0 }, other = { 0 };

	blob_make(mounted, USRBIO_HANGS);
	blob_make(mounted, USRBIO_READS);
	for (unsigned i = 0; i < 8; i++) {
		asked[i].read.blob[0] = USRBIO_HANGS;
		ask(&mounted->loop, &asked[i], 0, 65536);
	}
	cr_assert_eq(mounted_ask(mounted, &other, USRBIO_READS, 0), 65536);
	remote_cancel(mounted->loop.remote, &asked[7].read);
	loop_until(&mounted->loop, asked, 8);
	for (unsigned i = 0; i < 8; i++) {
		cr_assert_eq(asked[i].result, i == 7 ? -ECANCELED : -ETIMEDOUT);
		free(asked[i].read.buffer);
	}
	free(other.read.buffer);
	mounted_free(mounted);
}

Test(remote_3fs, path_that_is_not_on_3fs_is_an_error_of_its_reads)
{
	struct loop *loop = calloc(1, sizeof *loop);
	struct asked asked = { 0 };

	cr_assert(loop);
	loop_open(loop, "3fs:/var/none.example");
	cr_assert_eq(ask_and_wait(loop, &asked, 0, 10), -ENODEV);
	loop_close(loop);
	free(asked.read.buffer);
	free(loop);
}
