/*
 * Remotes and caches that fail, all kinds at all points: every read has the right bytes or is EIO
 * in time, others are answered meanwhile, and once the fault is over all of it is right. The table
 * of what was seen is printed. Time is the test's while something hangs.
 */
#include "tests/unit/served_world.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/unit/hf3fs_leaks.h"
#include "tests/unit/hf3fs_stand_in.h"

enum kind { KIND_DIRECTORY, KIND_HTTP, KIND_3FS, KINDS };

enum fault {
	FAULT_ERROR, /* a folder is where the blob was */
	FAULT_MISSING,
	FAULT_CUT,
	FAULT_CORRUPT,
	FAULT_HANG,
	FAULT_SLOW,
	FAULT_GONE,  /* all of it: as when it is mounted no more */
	FAULT_FULL,  /* the cache's disk */
	FAULT_WRITE, /* the cache's disk gives errors */
	FAULTS,
};

enum point { POINT_TABLE, POINT_FIRST, POINT_MIDDLE, POINT_AHEAD, POINT_TAKEOVER, POINTS };

enum seen { SEEN_RIGHT = 1, SEEN_EIO = 2 };

static const char *const kind_names[] = { "dir", "http", "3fs" };
static const char *const fault_names[] = { "error", "missing", "cut",  "corrupt", "hang",
					   "slow",  "gone",    "full", "write" };
static const char *const point_names[] = { "table", "first", "middle", "ahead", "takeover" };
static const char *const seen_names[] = { "", "right", "EIO", "right, EIO" };

_Static_assert(sizeof kind_names / sizeof *kind_names == KINDS, "each has a name");
_Static_assert(sizeof fault_names / sizeof *fault_names == FAULTS, "each has a name");
_Static_assert(sizeof point_names / sizeof *point_names == POINTS, "each has a name");

enum { TIMEOUT_S = 2, HELD_MAX = 64, TURNS_MAX = 100000, HALF = DISK_CHUNKS / 2 };

/* Told in time: the remote's bound, the shard's tick, and a turn. */
#define BOUND_NS (TIMEOUT_S * 1000000000ull + 2000000000ull)

static struct {
	enum kind kind;
	enum fault fault;
	bool is_on, is_node_wanted;
	struct world *world;
	uint64_t passed_ns; /* that was not waited for */
	pid_t server;
	int server_pipe;
	unsigned port;
	void (*hold_3fs)(bool held);
	struct held {
		struct io *io;
		struct io_op *op;
		int fd;
		struct io_range range;
	} held[HELD_MAX];
	uint32_t held_count;
} now;

/* ---- what the linker puts before the real calls ---- */

void __real_io_read_far(struct io *io, struct io_op *op, int fd, const struct io_range *range);
void __real_io_write_at(struct io *io, struct io_op *op, int fd, const struct io_range *range);
uint64_t __real_io_now_ns(const struct io *io);
uint64_t __real_io_clock_ns(struct io *io);
int __real_io_turn(struct io *io, uint64_t until_ns);
void __wrap_io_read_far(struct io *io, struct io_op *op, int fd, const struct io_range *range);
void __wrap_io_write_at(struct io *io, struct io_op *op, int fd, const struct io_range *range);
uint64_t __wrap_io_now_ns(const struct io *io);
uint64_t __wrap_io_clock_ns(struct io *io);
int __wrap_io_turn(struct io *io, uint64_t until_ns);

static bool is_held(void)
{
	return now.is_on && (now.fault == FAULT_HANG || now.fault == FAULT_SLOW);
}

void __wrap_io_read_far(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	if (!is_held()) {
		__real_io_read_far(io, op, fd, range);
		return;
	}
	cr_assert_lt(now.held_count, (uint32_t)HELD_MAX);
	now.held[now.held_count++] = (struct held){ io, op, fd, *range };
}

void __wrap_io_write_at(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	static int full = -1, bad = -1;

	if (full < 0) {
		full = open("/dev/full", O_WRONLY | O_CLOEXEC);
		bad = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	if (now.is_on && now.fault == FAULT_FULL)
		fd = full;
	if (now.is_on && now.fault == FAULT_WRITE)
		fd = bad;
	__real_io_write_at(io, op, fd, range);
}

uint64_t __wrap_io_now_ns(const struct io *io)
{
	return __real_io_now_ns(io) + now.passed_ns;
}

uint64_t __wrap_io_clock_ns(struct io *io)
{
	return __real_io_clock_ns(io) + now.passed_ns;
}

int __wrap_io_turn(struct io *io, uint64_t until_ns)
{
	const uint64_t soon_ns = __real_io_clock_ns(io) + 1000000;
	int r;

	until_ns = until_ns > now.passed_ns ? until_ns - now.passed_ns : 0;
	r = __real_io_turn(io, is_held() && until_ns > soon_ns ? soon_ns : until_ns);
	if (is_held() && now.fault == FAULT_HANG)
		now.passed_ns += 100000000;
	if (now.is_node_wanted) {
		now.is_node_wanted = false;
		world_take(now.world);
	}
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
	now.is_node_wanted = true;
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

/* ---- remotes ---- */

/* The one that figures are taken of: it reads the folder's files. */
static void server_start(const struct disk *disk)
{
	const char *program = getenv("DELAYED_REMOTE");
	char blobs[192], port[16] = "", line[16] = "";
	int in[2], out[2];

	cr_assert(program);
	(void)snprintf(blobs, sizeof blobs, "%s/blobs/sha256", disk->path);
	(void)snprintf(port, sizeof port, "%u", now.port);
	cr_assert_eq(pipe2(in, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(out, O_CLOEXEC), 0);
	now.server = fork();
	cr_assert_geq(now.server, 0);
	if (!now.server) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(in[0], STDIN_FILENO);
		(void)dup2(out[1], STDOUT_FILENO);
		(void)execl(program, "delayed_remote", blobs, "0", port, (char *)NULL);
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	cr_assert_gt(read(out[0], line, sizeof line - 1), 0);
	(void)close(out[0]);
	now.server_pipe = in[1];
	now.port = (unsigned)strtoul(line, NULL, 10);
}

static void server_stop(void)
{
	(void)kill(now.server, SIGKILL);
	cr_assert_eq(waitpid(now.server, NULL, 0), now.server);
	(void)close(now.server_pipe);
}

static void remote_begin(struct disk *disk)
{
	void *library;

	switch (now.kind) {
	case KIND_DIRECTORY:
		return;
	case KIND_HTTP:
		now.port = 0;
		server_start(disk);
		(void)snprintf(disk->address, sizeof disk->address, "http://127.0.0.1:%u",
			       now.port);
		return;
	case KIND_3FS:
		(void)snprintf(disk->address, sizeof disk->address, "3fs:%s", disk->path);
		library = dlopen(USRBIO_LIBRARY, RTLD_NOW | RTLD_LOCAL);
		cr_assert(library, "the stand-in");
		*(void **)&now.hold_3fs = dlsym(library, "hf3fs_stand_in_hold");
		cr_assert(now.hold_3fs);
		return;
	case KINDS:
		return;
	}
}

static void remote_hold(bool held)
{
	const uint32_t count = now.held_count;

	if (now.kind == KIND_HTTP)
		cr_assert_eq(kill(now.server, held ? SIGSTOP : SIGCONT), 0);
	if (now.kind == KIND_3FS)
		now.hold_3fs(held);
	if (held)
		return;
	now.held_count = 0;
	for (uint32_t i = 0; i < count; i++)
		__real_io_read_far(now.held[i].io, now.held[i].op, now.held[i].fd,
				   &now.held[i].range);
}

/* ---- faults ---- */

static void blob_path(const struct disk *disk, const uint8_t *digest, const char *end,
		      char ret[192])
{
	char hex[DIGEST_HEX_BYTES];

	digest_hex(digest, hex);
	(void)snprintf(ret, 192, "%s/blobs/sha256/%s%s", disk->path, hex, end);
}

/* Bytes that differ: a few of each chunk. Called again, they are as they were. */
static void blob_flip(const char *path)
{
	auto_close int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	uint8_t byte;

	cr_assert_eq(fstat(fd, &st), 0);
	for (off_t at = 10; at < st.st_size; at += SEGMENT_CHUNK_BYTES / 2) {
		cr_assert_eq(pread(fd, &byte, 1, at), 1);
		byte ^= 0x10;
		cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
	}
}

/* Where it was cut off, what follows is written anew. */
static void blob_cut(const struct disk *disk, const uint8_t *digest, bool on)
{
	static uint8_t kept[DISK_BYTES];
	static ssize_t bytes;
	char path[192];

	blob_path(disk, digest, "", path);
	auto_close int fd = open(path, O_RDWR | O_CLOEXEC);
	if (on) {
		bytes = pread(fd, kept, sizeof kept, 0);
		cr_assert_eq(ftruncate(fd, bytes / 3), 0);
	} else {
		cr_assert_eq(pwrite(fd, kept, (size_t)bytes, 0), bytes);
	}
}

static void blob_move(const struct disk *disk, const uint8_t *digest, bool on)
{
	char path[192], away[192];

	blob_path(disk, digest, "", path);
	blob_path(disk, digest, ".away", away);
	if (!on && now.fault == FAULT_ERROR)
		cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(rename(on ? path : away, on ? away : path), 0);
	if (on && now.fault == FAULT_ERROR)
		cr_assert_eq(mkdir(path, 0700), 0);
}

static void remote_go(const struct disk *disk, bool on)
{
	char path[192], away[192];

	if (now.kind == KIND_HTTP && on)
		server_stop();
	(void)snprintf(path, sizeof path, "%s/blobs", disk->path);
	(void)snprintf(away, sizeof away, "%s/away", disk->path);
	cr_assert_eq(rename(on ? path : away, on ? away : path), 0);
	if (now.kind == KIND_HTTP && !on)
		server_start(disk);
}

static void fault_turn(const struct disk *disk, const uint8_t *digest, bool on)
{
	char path[192];

	now.is_on = on;
	switch (now.fault) {
	case FAULT_ERROR:
	case FAULT_MISSING:
		blob_move(disk, digest, on);
		return;
	case FAULT_CUT:
		blob_cut(disk, digest, on);
		return;
	case FAULT_CORRUPT:
		blob_path(disk, digest, "", path);
		blob_flip(path);
		return;
	case FAULT_HANG:
	case FAULT_SLOW:
		remote_hold(on);
		return;
	case FAULT_GONE:
		remote_go(disk, on);
		return;
	case FAULT_FULL:
	case FAULT_WRITE:
	case FAULTS:
		return;
	}
}

/* ---- reads ---- */

static struct world *world_begin(struct disk *disk)
{
	now.world = world_new(disk);
	now.world->config.remote_timeout_s = TIMEOUT_S;
	return now.world;
}

/* Who only asks what there is has an answer, whatever hangs. */
static void attributes_ask(struct world *world)
{
	const struct fuse_in_header ask = { .len = sizeof ask + sizeof(struct fuse_getattr_in),
					    .opcode = FUSE_GETATTR,
					    .unique = ++world->unique,
					    .nodeid = ASK_ROOT };
	char bytes[sizeof ask + sizeof(struct fuse_getattr_in)] = { 0 }, answer[256];
	const uint64_t end_ns = __real_io_clock_ns(world->shard.io) + held_up_ms() * 1000000;
	struct fuse_out_header head = { 0 };
	ssize_t n;

	memcpy(bytes, &ask, sizeof ask);
	cr_assert_eq(write(world->fuse_fd, bytes, sizeof bytes), (ssize_t)sizeof bytes);
	while (head.unique != ask.unique && __real_io_clock_ns(world->shard.io) < end_ns) {
		world_turn_for(world, 1000000);
		n = read(world->fuse_fd, answer, sizeof answer);
		if (n >= (ssize_t)sizeof head)
			memcpy(&head, answer, sizeof head);
	}
	cr_assert_eq(head.unique, ask.unique, "the shard is stuck");
	cr_assert_eq(head.error, 0);
}

static enum seen chunks_read(struct world *world, uint32_t from, uint32_t to)
{
	uint8_t got[SEGMENT_CHUNK_BYTES];
	enum seen seen = 0;

	for (uint32_t at = from * SEGMENT_CHUNK_BYTES;
	     at < to * SEGMENT_CHUNK_BYTES && at < DISK_BYTES; at += SEGMENT_CHUNK_BYTES) {
		const uint32_t rest = DISK_BYTES - at;
		const uint32_t bytes = rest < SEGMENT_CHUNK_BYTES ? rest : SEGMENT_CHUNK_BYTES;
		const uint64_t begin_ns = io_clock_ns(world->shard.io);
		const int n = world_read(world, at, SEGMENT_CHUNK_BYTES, got);

		cr_assert_leq(io_clock_ns(world->shard.io) - begin_ns,
			      BOUND_NS + held_up_ms() * 1000000);
		if (n == -EIO) {
			seen |= SEEN_EIO;
			continue;
		}
		cr_assert_eq(n, (int)bytes, "%d", n);
		cr_assert_eq(memcmp(got, world->disk->contents + at, bytes), 0, "at %u", at);
		seen |= SEEN_RIGHT;
	}
	return seen;
}

/* Something is asked for and hangs; then it comes, or its time is over. */
static enum seen faulty_read(struct world *world, uint32_t from)
{
	attributes_ask(world);
	if (now.fault == FAULT_SLOW) {
		const struct {
			struct fuse_in_header head;
			struct fuse_read_in in;
		} ask = { .head = { .len = sizeof ask,
				    .opcode = FUSE_READ,
				    .unique = ++world->unique,
				    .nodeid = map_node(world->disk->facts.digest) },
			  .in = { .offset = (uint64_t)from * SEGMENT_CHUNK_BYTES, .size = 4096 } };
		char answer[sizeof(struct fuse_out_header) + 4096];

		cr_assert_eq(write(world->fuse_fd, &ask, sizeof ask), (ssize_t)sizeof ask);
		for (unsigned turns = 0; turns < 20; turns++)
			world_turn_for(world, 1000000);
		attributes_ask(world);
		cr_assert_lt(read(world->fuse_fd, answer, sizeof answer), 0, "it came early");
		remote_hold(false);
		now.is_on = false;
		for (unsigned turns = 0; world->shard.server->first && turns < TURNS_MAX; turns++)
			world_turn(world);
		cr_assert_eq(read(world->fuse_fd, answer, sizeof answer), (ssize_t)sizeof answer);
		cr_assert_eq(memcmp(answer + sizeof(struct fuse_out_header),
				    world->disk->contents + ask.in.offset, 4096),
			     0);
	}
	return chunks_read(world, from, DISK_CHUNKS);
}

/* ---- points ---- */

/* What is there when the fault begins. */
static struct world *point_reach(struct disk *disk, enum point point)
{
	struct world *world = world_begin(disk);
	char path[192];

	world_take(world);
	switch (point) {
	case POINT_TABLE:
		return world;
	case POINT_FIRST:
		cr_assert_eq(chunks_read(world, DISK_CHUNKS - 1, DISK_CHUNKS), SEEN_RIGHT);
		world_give(world);
		break;
	case POINT_TAKEOVER:
		cr_assert_eq(chunks_read(world, 0, HALF), SEEN_RIGHT);
		world_give(world);
		break;
	case POINT_MIDDLE:
		cr_assert_eq(chunks_read(world, 0, HALF), SEEN_RIGHT);
		return world;
	case POINT_AHEAD:
		cr_assert_eq(chunks_read(world, 0, DISK_CHUNKS), SEEN_RIGHT);
		world_give(world);
		for (const char *end = ".data\0.map\0"; *end; end += strlen(end) + 1) {
			disk_path(disk, end, path);
			cr_assert_eq(unlink(path), 0);
		}
		break;
	case POINTS:
		break;
	}
	world_free(world);
	return NULL;
}

static enum seen point_live(struct disk *disk, struct world **world, enum point point)
{
	const struct served *served;

	if (point == POINT_MIDDLE)
		return faulty_read(*world, HALF);
	if (!*world) {
		*world = world_begin(disk);
		(*world)->shard.server->connections[0].is_old = point == POINT_TAKEOVER;
		if (point != POINT_TAKEOVER)
			world_take(*world);
	}
	if (point != POINT_AHEAD)
		return faulty_read(*world, point == POINT_TAKEOVER ? HALF : 0);
	/* Nobody asks; what is fetched ahead ends, one way or the other. */
	served = server_find((*world)->shard.server, map_node(disk->facts.digest));
	cr_assert_gt(served->list_count, 0u);
	for (unsigned turns = 0; served->flights && turns < TURNS_MAX; turns++) {
		if (now.fault == FAULT_SLOW && turns == 20) {
			remote_hold(false);
			now.is_on = false;
		}
		world_turn(*world);
	}
	cr_assert_eq(served->flights, 0u, "what is ahead stays");
	attributes_ask(*world);
	return 0;
}

static enum seen cell_try(enum kind kind, enum fault fault, enum point point)
{
	struct disk *disk = disk_new();
	struct world *world;
	const uint8_t *digest = point == POINT_TABLE ? disk->facts.chunks : disk->facts.digest;
	enum seen seen, after;

	now.kind = kind;
	now.fault = fault;
	remote_begin(disk);
	world = point_reach(disk, point);
	fault_turn(disk, digest, true);
	seen = point_live(disk, &world, point);
	if (now.is_on || fault != FAULT_SLOW)
		fault_turn(disk, digest, false);
	after = chunks_read(world, 0, DISK_CHUNKS);
	cr_assert_eq(after, SEEN_RIGHT, "%s: when %s is over (%s): %s", kind_names[kind],
		     fault_names[fault], point_names[point], seen_names[after]);
	world_give(world);
	(void)disk_check(disk);
	world_free(world);
	if (kind == KIND_HTTP)
		server_stop();
	disk_free(disk);
	return seen;
}

/* What must have been seen: nothing is an error that need not be one. */
static void seen_judge(enum fault fault, enum point point, enum seen seen)
{
	if (point == POINT_AHEAD)
		cr_expect_eq(seen, 0);
	else if (fault >= FAULT_FULL || fault == FAULT_SLOW)
		cr_expect_eq(seen, SEEN_RIGHT);
	else if (point == POINT_TABLE || fault == FAULT_HANG || fault == FAULT_CORRUPT)
		cr_expect(seen & SEEN_EIO);
	else
		cr_expect_neq(seen, 0);
}

static void matrix_try(enum kind kind)
{
	enum seen all[FAULTS][POINTS];

	for (enum fault fault = 0; fault < FAULTS; fault++)
		for (enum point point = 0; point < POINTS; point++) {
			all[fault][point] = cell_try(kind, fault, point);
			seen_judge(fault, point, all[fault][point]);
		}
	printf("%-5s%-9s", kind_names[kind], "fault");
	for (enum point point = 0; point < POINTS; point++)
		printf("%-12s", point_names[point]);
	for (enum fault fault = 0; fault < FAULTS; fault++) {
		printf("\n     %-9s", fault_names[fault]);
		for (enum point point = 0; point < POINTS; point++)
			printf("%-12s",
			       point == POINT_AHEAD ? "nobody" : seen_names[all[fault][point]]);
	}
	printf("\n");
}

Test(serve_faults, of_a_folder)
{
	matrix_try(KIND_DIRECTORY);
}

Test(serve_faults, of_a_server)
{
	matrix_try(KIND_HTTP);
}

Test(serve_faults, of_3fs)
{
	matrix_try(KIND_3FS);
}

Test(serve_faults, a_cache_that_nothing_can_be_made_in_is_told_when_it_is_begun)
{
	struct disk *disk = disk_new();
	char path[192];
	struct served *served = NULL;

	(void)snprintf(path, sizeof path, "%s/gone", disk->path);
	cr_assert_eq(mkdir(path, 0700), 0);
	auto_close int gone = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(rmdir(path), 0);
	cr_assert_lt(map_open(gone, &disk->facts, &served), 0);
	cr_assert_null(served);
	disk_free(disk);
}
