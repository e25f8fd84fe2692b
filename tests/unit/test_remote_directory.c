/* A remote that is a directory, by a real ring on a folder of the test's. */
#include "tests/unit/remote_loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct folder {
	struct loop loop;
	char path[64], address[80];
};

static void blob_path(const struct folder *folder, uint8_t blob, char ret[256])
{
	const uint8_t digest[DIGEST_BYTES] = { blob };
	char hex[DIGEST_HEX_BYTES];

	digest_hex(digest, hex);
	(void)snprintf(ret, 256, "%s/blobs/sha256/%s", folder->path, hex);
}

static void blob_make(const struct folder *folder, uint8_t blob, uint32_t bytes)
{
	auto_free uint8_t *contents = malloc(bytes + 1);
	char path[256];

	cr_assert(contents);
	for (uint32_t i = 0; i < bytes; i++)
		contents[i] = blob_byte(blob, i);
	blob_path(folder, blob, path);
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, contents, bytes), (ssize_t)bytes);
}

static void blobs_folder_make(const struct folder *folder)
{
	char path[96];

	(void)snprintf(path, sizeof path, "%s/blobs", folder->path);
	cr_assert_eq(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof path, "%s/blobs/sha256", folder->path);
	cr_assert_eq(mkdir(path, 0700), 0);
}

static struct folder *folder_new(void)
{
	struct folder *folder = calloc(1, sizeof *folder);

	cr_assert(folder);
	(void)snprintf(folder->path, sizeof folder->path, "/tmp/dsec-remote-XXXXXX");
	cr_assert(mkdtemp(folder->path));
	(void)snprintf(folder->address, sizeof folder->address, "dir:%s", folder->path);
	blobs_folder_make(folder);
	loop_open(&folder->loop, folder->address);
	return folder;
}

static void folder_free(struct folder *folder)
{
	char path[256];

	loop_close(&folder->loop);
	for (unsigned blob = 0; blob < 256; blob++) {
		blob_path(folder, (uint8_t)blob, path);
		if (unlink(path) < 0 && errno == EISDIR)
			(void)rmdir(path);
	}
	(void)snprintf(path, sizeof path, "%s/blobs/sha256", folder->path);
	(void)rmdir(path);
	(void)snprintf(path, sizeof path, "%s/blobs", folder->path);
	(void)rmdir(path);
	(void)rmdir(folder->path);
	free(folder);
}

static unsigned descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	while (readdir(dir))
		count++;
	(void)closedir(dir);
	return count;
}

Test(remote_directory, reads_are_what_the_blob_holds_and_short_at_its_end_only)
{
	struct folder *folder = folder_new();
	struct asked asked = { .read.blob = { 7 } };

	blob_make(folder, 7, 300000);
	(void)ask_and_wait(&folder->loop, &asked, 0, 65536);
	assert_read(&asked, 65536);
	(void)ask_and_wait(&folder->loop, &asked, 262144, 65536);
	assert_read(&asked, 300000 - 262144);
	(void)ask_and_wait(&folder->loop, &asked, 299999, REMOTE_BYTES_MAX);
	assert_read(&asked, 1);
	cr_assert_eq(ask_and_wait(&folder->loop, &asked, 300000, 1), 0);
	cr_assert_eq(ask_and_wait(&folder->loop, &asked, UINT64_MAX, 1), 0);
	free(asked.read.buffer);
	folder_free(folder);
}

Test(remote_directory, read_of_no_bytes_or_too_many_is_refused)
{
	struct folder *folder = folder_new();
	struct asked asked = { .read.blob = { 1 } };

	blob_make(folder, 1, 4096);
	cr_assert_eq(ask_and_wait(&folder->loop, &asked, 0, 0), -EINVAL);
	cr_assert_eq(ask_and_wait(&folder->loop, &asked, 0, REMOTE_BYTES_MAX + 1), -EINVAL);
	free(asked.read.buffer);
	folder_free(folder);
}

Test(remote_directory, missing_blob_is_read_once_it_is_there)
{
	struct folder *folder = folder_new();
	struct asked asked = { .read.blob = { 9 } };

	cr_assert_eq(ask_and_wait(&folder->loop, &asked, 0, 10), -ENOENT);
	blob_make(folder, 9, 10);
	(void)ask_and_wait(&folder->loop, &asked, 0, 10);
	assert_read(&asked, 10);
	free(asked.read.buffer);
	folder_free(folder);
}

Test(remote_directory, only_regular_files_are_read_and_none_holds_it)
{
	struct folder *folder = folder_new();
	struct asked asked = { 0 };
	char path[256];

	blob_path(folder, 1, path);
	cr_assert_eq(mkfifo(path, 0600), 0);
	blob_path(folder, 2, path);
	cr_assert_eq(mkdir(path, 0700), 0);
	blob_path(folder, 3, path);
	cr_assert_eq(symlink("/etc/passwd", path), 0);
	blob_make(folder, 5, 4096);
	blob_path(folder, 4, path);
	cr_assert_eq(symlink(strrchr(path, '/') + 1, path), 0);
	asked.read.blob[0] = 1;
	cr_assert_eq(ask_and_wait(&folder->loop, &asked, 0, 10), -EIO);
	asked.read.blob[0] = 2;
	cr_assert_eq(ask_and_wait(&folder->loop, &asked, 0, 10), -EIO);
	for (uint8_t link = 3; link <= 4; link++) {
		asked.read.blob[0] = link;
		cr_assert_eq(ask_and_wait(&folder->loop, &asked, 0, 10), -ELOOP);
	}
	free(asked.read.buffer);
	folder_free(folder);
}

enum { MANY = 240, BLOBS = 120 };

Test(remote_directory, many_reads_of_many_blobs_hold_a_bounded_number_of_descriptors)
{
	struct folder *folder = folder_new();
	struct asked *asked = calloc(MANY, sizeof *asked);
	unsigned before = descriptors();

	cr_assert(asked);
	for (uint8_t blob = 0; blob < BLOBS; blob++)
		blob_make(folder, blob, 5000);
	for (unsigned i = 0; i < MANY; i++) {
		asked[i].read.blob[0] = (uint8_t)(i * 7 % BLOBS);
		ask(&folder->loop, &asked[i], i * 5, 4096);
	}
	loop_until(&folder->loop, asked, MANY);
	cr_assert_leq(descriptors(), before + 64 + 1);
	for (unsigned i = 0; i < MANY; i++) {
		const uint32_t left = 5000 - i * 5;

		assert_read(&asked[i], left < 4096 ? left : 4096);
		free(asked[i].read.buffer);
	}
	free(asked);
	folder_free(folder);
}

Test(remote_directory, cancelled_reads_are_told_so_and_their_buffers_left_alone)
{
	struct folder *folder = folder_new();
	struct asked *asked = calloc(MANY, sizeof *asked);

	cr_assert(asked);
	blob_make(folder, 3, 70000);
	for (unsigned i = 0; i < MANY; i++) {
		asked[i].read.blob[0] = 3;
		ask(&folder->loop, &asked[i], 0, 65536);
		if (i % 40 == 20) /* some were begun */
			loop_turn(&folder->loop, 0);
	}
	for (unsigned i = 0; i < MANY; i += 2)
		if (!asked[i].told)
			remote_cancel(folder->loop.remote, &asked[i].read);
	loop_until(&folder->loop, asked, MANY);
	for (unsigned i = 0; i < MANY; i++) {
		const uint8_t *buffer = asked[i].read.buffer;

		if (asked[i].result != -ECANCELED) {
			assert_read(&asked[i], 65536);
		} else {
			cr_assert_eq(i % 2, 0);
			cr_assert_eq(buffer[0], 0xa5);
			cr_assert_eq(buffer[65535], 0xa5);
		}
		free(asked[i].read.buffer);
	}
	free(asked);
	folder_free(folder);
}

Test(remote_directory, folder_that_was_replaced_is_found_again)
{
	struct folder *folder = folder_new();
	struct asked asked = { .read.blob = { 8 } };
	char path[256], moved[256];

	blob_make(folder, 1, 10);
	cr_assert_eq(ask_and_wait(&folder->loop, &asked, 0, 10), -ENOENT);
	asked.read.blob[0] = 1;
	cr_assert_eq(ask_and_wait(&folder->loop, &asked, 0, 10), 10);
	blob_path(folder, 1, path);
	cr_assert_eq(unlink(path), 0);
	(void)snprintf(path, sizeof path, "%s/blobs", folder->path);
	(void)snprintf(moved, sizeof moved, "%s/moved", folder->path);
	cr_assert_eq(rename(path, moved), 0);
	blobs_folder_make(folder);
	blob_make(folder, 8, 10);
	asked.read.blob[0] = 8;
	(void)ask_and_wait(&folder->loop, &asked, 0, 10); /* of the old folder */
	(void)ask_and_wait(&folder->loop, &asked, 0, 10);
	assert_read(&asked, 10);
	(void)snprintf(path, sizeof path, "%s/moved/sha256", folder->path);
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(rmdir(moved), 0);
	free(asked.read.buffer);
	folder_free(folder);
}

Test(remote_directory, address_is_an_absolute_path)
{
	const char *why = NULL;

	cr_assert_eq(remote_check("dir:/srv/images.example", &why), 0);
	cr_assert_eq(remote_check("dir:images", &why), -EINVAL);
	cr_assert_str_eq(why, "dir: wants an absolute path");
	cr_assert_eq(remote_check("dir:", &why), -EINVAL);
	cr_assert_eq(remote_check("3fs:/3fs/images", &why), -EINVAL, "its library is not here");
	cr_assert(strstr(why, "libhf3fs_api_shared.so"));
	cr_assert(strstr(why, "dir:"), "the remedy");
	cr_assert_eq(remote_check("ftp://images.example/", &why), -EINVAL);
	cr_assert(strstr(why, "dir:"), "%s", why);
}
