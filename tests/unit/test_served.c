/*
 * Segments that are served: killed, and cut off from power, at every point of filling and evicting;
 * looked at again; and asked by a kernel that is none.
 */
#include "tests/unit/served_world.h"

#include <signal.h>
#include <sys/wait.h>

enum cut {
	CUT_KILL,  /* what was written stays */
	CUT_POWER, /* what was not synced is lost */
	CUTS,
};

enum { WRITES_MAX = 256, POINTS_MAX = 2000, SECTOR_BYTES = 512 };

enum write_state { WRITE_ASKED, WRITE_DONE, WRITE_SYNCING, WRITE_SYNCED };

/* A write that a cut of the power may lose. */
struct write {
	const struct io_op *op;
	uint64_t offset;
	uint32_t bytes;
	enum write_state state;
};

/* Of the process that is to die. */
static struct {
	bool is_armed;
	enum cut cut;
	uint32_t left; /* points that it lives through */
	int data_fd;
	struct write writes[WRITES_MAX];
	uint32_t write_count;
	void (*written)(struct io_op *op, int res), (*mapped)(struct io_op *op, int res),
		(*synced)(struct io_op *op, int res);
	bool is_map_gone; /* and the folder is not synced */
	int cache_fd;
	const char *map, *kept;
} crash;

/* ---- what the linker puts before the real calls, each a point or more ---- */

void __real_io_write_at(struct io *io, struct io_op *op, int fd, const struct io_range *range);
void __real_io_sync_data(struct io *io, struct io_op *op, int fd);
ssize_t __real_pwrite(int fd, const void *bytes, size_t count, off_t at);
int __real_ftruncate(int fd, off_t bytes);
int __real_fdatasync(int fd);
int __real_fsync(int fd);
int __real_unlinkat(int folder_fd, const char *name, int flags);
void __wrap_io_write_at(struct io *io, struct io_op *op, int fd, const struct io_range *range);
void __wrap_io_sync_data(struct io *io, struct io_op *op, int fd);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t at);
int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_unlinkat(int folder_fd, const char *name, int flags);

/* ---- dying ---- */

/* One that cannot die as it should has another status. */
static void must(ssize_t result)
{
	if (result < 0)
		_exit(3);
}

static void power_cut(void)
{
	static const char nothing[SEGMENT_CHUNK_BYTES * FETCH_CHUNKS];

	for (uint32_t i = 0; i < crash.write_count; i++)
		if (crash.writes[i].state != WRITE_SYNCED)
			must(__real_pwrite(crash.data_fd, nothing, crash.writes[i].bytes,
					   (off_t)crash.writes[i].offset));
	if (crash.is_map_gone)
		must(rename(crash.kept, crash.map));
}

/* False: it is not here that it dies. */
static bool point_is_last(void)
{
	return crash.is_armed && !crash.left--;
}

static void die(void)
{
	crash.is_armed = false;
	if (crash.cut == CUT_POWER)
		power_cut();
	(void)kill(getpid(), SIGKILL);
}

static void point(void)
{
	if (point_is_last())
		die();
}

/* ---- points ---- */

static void chunk_written(struct io_op *op, int res)
{
	for (uint32_t i = 0; i < crash.write_count; i++)
		if (crash.writes[i].op == op && crash.writes[i].state == WRITE_ASKED)
			crash.writes[i].state = WRITE_DONE;
	point(); /* data written, nobody knows */
	crash.written(op, res);
}

static void bits_written(struct io_op *op, int res)
{
	point(); /* bits written */
	crash.mapped(op, res);
}

static void data_synced(struct io_op *op, int res)
{
	for (uint32_t i = 0; i < crash.write_count; i++)
		if (crash.writes[i].state == WRITE_SYNCING)
			crash.writes[i].state = WRITE_SYNCED;
	point(); /* data synced, bits not written */
	crash.synced(op, res);
}

/* It dies in the middle of a write, too; what is within a sector is written or not. */
static void half_write(int fd, const void *bytes, size_t count, off_t at)
{
	if (count <= SECTOR_BYTES || !point_is_last())
		return;
	must(__real_pwrite(fd, bytes, count / 2, at));
	die();
}

void __wrap_io_write_at(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	const bool is_bits = range->offset == MAP_BITS_AT && range->bytes < 4096;

	point();
	if (crash.is_armed && !is_bits) {
		cr_assert_lt(crash.write_count, (uint32_t)WRITES_MAX);
		crash.data_fd = fd;
		crash.writes[crash.write_count++] = (struct write){
			.op = op,
			.offset = range->offset,
			.bytes = range->bytes,
		};
	}
	half_write(fd, range->buffer, range->bytes, (off_t)range->offset);
	*(is_bits ? &crash.mapped : &crash.written) = op->done;
	op->done = is_bits ? bits_written : chunk_written;
	__real_io_write_at(io, op, fd, range);
}

void __wrap_io_sync_data(struct io *io, struct io_op *op, int fd)
{
	point();
	for (uint32_t i = 0; i < crash.write_count; i++)
		if (crash.writes[i].state == WRITE_DONE)
			crash.writes[i].state = WRITE_SYNCING;
	crash.synced = op->done;
	op->done = data_synced;
	__real_io_sync_data(io, op, fd);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t at)
{
	point();
	half_write(fd, bytes, count, at);
	return __real_pwrite(fd, bytes, count, at);
}

int __wrap_ftruncate(int fd, off_t bytes)
{
	point();
	return __real_ftruncate(fd, bytes);
}

int __wrap_fdatasync(int fd)
{
	point();
	return __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
	point();
	if (fd == crash.cache_fd)
		crash.is_map_gone = false;
	return __real_fsync(fd);
}

int __wrap_unlinkat(int folder_fd, const char *name, int flags)
{
	int r;

	point();
	r = __real_unlinkat(folder_fd, name, flags);
	if (crash.is_armed && strstr(name, ".map"))
		crash.is_map_gone = true;
	point();
	return r;
}

/* ---- of the control thread, which this is ---- */

void serve_taken(struct served *served)
{
	(void)served;
}

void serve_given(struct shard *shard, struct served *served)
{
	container_of(shard, struct world, shard)->home = served;
}

void serve_node_want(struct server *server)
{
	(void)server;
	cr_assert_fail("no connection is of an engine before");
}

bool serve_room_take(struct server *server, uint32_t bytes)
{
	(void)server;
	(void)bytes;
	return true;
}

void serve_room_give(struct served *served, uint32_t bytes)
{
	(void)served;
	(void)bytes;
}

/* ---- lives that end early ---- */

static void fill(struct disk *disk)
{
	world_live(disk);
}

static void evict(struct disk *disk)
{
	cr_assert_eq(map_remove(disk->cache_fd, disk->facts.digest), 0);
}

/* Dies at the point of that number; false: it had ended before. */
static bool life_cut(struct disk *disk, void (*live)(struct disk *disk), enum cut cut,
		     uint32_t point_number)
{
	char map[192], kept[192];
	int status;
	pid_t pid;

	disk_path(disk, ".map", map);
	disk_path(disk, ".kept", kept);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		if (live == evict)
			must(link(map, kept));
		crash.map = map;
		crash.kept = kept;
		crash.cache_fd = disk->cache_fd;
		crash.cut = cut;
		crash.left = point_number;
		crash.is_armed = true;
		live(disk);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	(void)unlink(kept); /* where it was not put back */
	if (WIFEXITED(status)) {
		cr_assert_eq(WEXITSTATUS(status), 0);
		return false;
	}
	cr_assert_eq(WTERMSIG(status), SIGKILL);
	return true;
}

Test(served, killed_at_any_point_of_filling_it_has_nothing_that_is_wrong)
{
	struct disk *disk = disk_new();

	for (enum cut cut = 0; cut < CUTS; cut++) {
		uint32_t number = 0, kept = 0;

		while (number < POINTS_MAX && life_cut(disk, fill, cut, number)) {
			kept += disk_check(disk);
			world_live(disk);
			cr_assert_eq(disk_check(disk), (uint32_t)DISK_CHUNKS,
				     "what it was cut off from is fetched");
			world_live(disk); /* from what is stored */
			disk_empty(disk);
			number++;
		}
		cr_assert_lt(number, (uint32_t)POINTS_MAX);
		cr_assert_gt(number, 20u);
		cr_assert_gt(kept, 0u, "nothing that was synced is lost");
		cr_assert_eq(disk_check(disk), (uint32_t)DISK_CHUNKS);
		disk_empty(disk);
	}
	disk_free(disk);
}

Test(served, killed_at_any_point_of_filling_on_it_has_nothing_that_is_wrong)
{
	struct disk *disk = disk_new();
	uint8_t got[SEGMENT_CHUNK_BYTES];

	for (enum cut cut = 0; cut < CUTS; cut++) {
		uint32_t number = 0;
		bool was_cut = true;

		/* Half of it is there from an earlier life, with a table and a list. */
		for (; number < POINTS_MAX && was_cut; number++) {
			struct world *world = world_new(disk);

			world_take(world);
			for (uint32_t i = 0; i < DISK_CHUNKS; i += 2)
				cr_assert_gt(world_read(world, i * SEGMENT_CHUNK_BYTES, 4096, got),
					     0);
			world_give(world);
			world_free(world);
			was_cut = life_cut(disk, fill, cut, number);
			cr_assert_geq(disk_check(disk), (uint32_t)(DISK_CHUNKS + 1) / 2);
			world_live(disk);
			cr_assert_eq(disk_check(disk), (uint32_t)DISK_CHUNKS);
			disk_empty(disk);
		}
		cr_assert_lt(number, (uint32_t)POINTS_MAX);
		cr_assert_gt(number, 10u);
	}
	disk_free(disk);
}

Test(served, killed_at_any_point_of_evicting_it_has_nothing_that_is_wrong)
{
	struct disk *disk = disk_new();

	for (enum cut cut = 0; cut < CUTS; cut++) {
		uint32_t number = 0;
		bool was_cut = true;

		for (; number < POINTS_MAX && was_cut; number++) {
			world_live(disk);
			was_cut = life_cut(disk, evict, cut, number);
			(void)disk_check(disk);
			world_live(disk);
			cr_assert_eq(disk_check(disk), (uint32_t)DISK_CHUNKS);
			disk_empty(disk);
		}
		cr_assert_eq(number, 6u, "map, folder, data: %u points", number);
	}
	disk_free(disk);
}

/* ---- what rests ---- */

Test(served, what_changed_on_the_disk_is_found_wherever_it_is)
{
	struct disk *disk = disk_new();
	struct map_facts facts;
	char path[192];

	world_live(disk);
	cr_assert_eq(map_facts_read(disk->cache_fd, disk->facts.digest, &facts), 0);
	cr_assert(facts.is_whole);
	cr_assert(facts.has_table);
	cr_assert_eq(map_scrub(disk->cache_fd, &facts, 0, DISK_CHUNKS), 1);
	disk_path(disk, ".data", path);
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
	for (uint32_t i = 0; i < DISK_CHUNKS; i++) {
		const uint32_t at = i * SEGMENT_CHUNK_BYTES + i * 1000;
		const uint8_t other = disk->contents[at] ^ 1;

		cr_assert_eq(pwrite(fd, &other, 1, at), 1);
		for (uint32_t chunk = 0; chunk < DISK_CHUNKS; chunk++)
			cr_assert_eq(map_scrub(disk->cache_fd, &facts, chunk, 1), chunk != i);
		cr_assert_eq(pwrite(fd, &disk->contents[at], 1, at), 1);
	}
	cr_assert_eq(ftruncate(fd, DISK_BYTES - 4096), 0);
	cr_assert_lt(map_scrub(disk->cache_fd, &facts, DISK_CHUNKS - 1, 1), 1);
	disk_free(disk);
}

/* ---- a kernel that is none ---- */

static uint32_t chance(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

union ask {
	struct {
		struct fuse_in_header head;
		union {
			struct fuse_read_in read;
			struct fuse_interrupt_in interrupt;
			struct fuse_open_in open;
			char name[DIGEST_HEX_BYTES];
			uint8_t bytes[128];
		};
	};
	uint8_t all[256];
};

static size_t ask_make(const struct disk *disk, uint32_t *seed, uint64_t unique, union ask *ask)
{
	static const uint32_t kinds[] = { FUSE_READ,	FUSE_READ,    FUSE_READ,  FUSE_INTERRUPT,
					  FUSE_LOOKUP,	FUSE_GETATTR, FUSE_OPEN,  FUSE_WRITE,
					  FUSE_RELEASE, FUSE_INIT,    FUSE_FORGET };
	const uint32_t count = sizeof kinds / sizeof *kinds;
	size_t bytes = sizeof ask->head + chance(seed) % 128;

	for (size_t i = 0; i < sizeof ask->all; i++)
		ask->all[i] = (uint8_t)chance(seed);
	ask->head.opcode = kinds[chance(seed) % count];
	ask->head.unique = unique;
	ask->head.nodeid = chance(seed) % 8 ? map_node(disk->facts.digest) : chance(seed) % 3;
	if (ask->head.opcode == FUSE_READ) {
		ask->read.offset = chance(seed) % 16 ? chance(seed) % (DISK_BYTES + 9000) :
						       UINT64_MAX - chance(seed) % 9000;
		ask->read.size = chance(seed) % 16 ? chance(seed) % 2048 : chance(seed) << 4;
		bytes = chance(seed) % 16 ? sizeof ask->head + sizeof ask->read : bytes;
	}
	if (ask->head.opcode == FUSE_INTERRUPT)
		ask->interrupt.unique = unique - chance(seed) % 8;
	if (ask->head.opcode == FUSE_LOOKUP)
		digest_hex(disk->facts.digest, ask->name);
	ask->head.len = chance(seed) % 16 ? (uint32_t)bytes : chance(seed);
	return bytes;
}

enum { ASKS = 4000 };

struct asked {
	bool is_read, may_be_silent;
	uint32_t answers, bytes;
	uint64_t offset;
};

static void answer_check(const struct disk *disk, const char *answer, ssize_t n,
			 struct asked *asked)
{
	struct fuse_out_header head;

	cr_assert_geq(n, (ssize_t)sizeof head);
	memcpy(&head, answer, sizeof head);
	cr_assert_eq(head.len, (uint32_t)n);
	cr_assert(head.unique > 0 && head.unique <= ASKS);
	asked += head.unique;
	asked->answers++;
	cr_assert_leq(head.error, 0);
	cr_assert(!head.error || n == (ssize_t)sizeof head);
	if (!asked->is_read || head.error || asked->offset >= DISK_BYTES)
		return;
	cr_assert_leq(n - (ssize_t)sizeof head, (ssize_t)asked->bytes);
	cr_assert(!asked->bytes || n > (ssize_t)sizeof head);
	cr_assert_eq(memcmp(answer + sizeof head, disk->contents + asked->offset,
			    (size_t)n - sizeof head),
		     0);
}

/* A turn; or until none is in hand: a socket has less room than a device. */
static void answers_take(struct world *world, struct asked *asked, bool all)
{
	static char answer[sizeof(struct fuse_out_header) + ASK_READ_BYTES_MAX];
	const uint64_t end_ns = io_clock_ns(world->shard.io) + 20000000000ull * slowness();
	ssize_t n;

	do {
		world_turn(world);
		while ((n = read(world->fuse_fd, answer, sizeof answer)) > 0)
			answer_check(world->disk, answer, n, asked);
	} while (all && world->shard.server->first && io_clock_ns(world->shard.io) < end_ns);
}

Test(served, whatever_it_is_asked_is_answered_once_and_right_or_not_at_all)
{
	struct disk *disk = disk_new();
	struct world *world = world_new(disk);
	struct asked *asked = calloc(ASKS + 1, sizeof *asked);
	uint32_t seed = 1, reads = 0;
	uint8_t got[4096];

	cr_assert(asked);
	world_take(world);
	for (uint64_t unique = 1; unique <= ASKS; unique++) {
		union ask ask;
		const size_t bytes = ask_make(disk, &seed, unique, &ask);

		asked[unique].is_read = ask.head.opcode == FUSE_READ && ask.head.len == bytes;
		asked[unique].may_be_silent = ask.head.len != bytes ||
					      ask.head.opcode == FUSE_INTERRUPT ||
					      ask.head.opcode == FUSE_FORGET;
		asked[unique].bytes = ask.read.size;
		asked[unique].offset = ask.read.offset;
		if (ask.read.size > 2048)
			answers_take(world, asked, true);
		cr_assert_eq(write(world->fuse_fd, &ask, bytes), (ssize_t)bytes);
		answers_take(world, asked, ask.read.size > 2048);
	}
	answers_take(world, asked, true);
	for (uint32_t i = 1; i <= ASKS; i++) {
		cr_assert_leq(asked[i].answers, 1u);
		cr_assert(asked[i].answers || asked[i].may_be_silent, "%u", i);
		reads += asked[i].is_read && asked[i].answers;
	}
	cr_assert_gt(reads, ASKS / 8u);
	world->unique = ASKS;
	cr_assert_eq(world_read(world, 4096, 4096, got), 4096, "it goes on");
	cr_assert_eq(memcmp(got, disk->contents + 4096, 4096), 0);
	world_give(world);
	world_free(world);
	free(asked);
	disk_free(disk);
}
