/*
 * A private engine for tests: `dsecd` with an instance, a socket and an image of its own, run by
 * this process, which adopts whatever the keeper leaves. A suite is one engine and the claims that
 * are tested on it; when it ends, the engine must end cleanly and nothing of it may be left.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <dsec/dsec.h>

#include "tests/slowness.h"

enum { ENGINE_PIDS_MAX = 4096, ENGINE_OBJECTS_MAX = 256, CLAIM_SECONDS_MAX = 120 };

struct engine_options {
	const char *const *arguments; /* of dsecd, beyond what every test's has; ends with NULL */
	const char *fault;	      /* DSEC_FAULT, for a dsecd that knows it */
	const char *instance;	      /* NULL: a name with our pid */
	const char *tenant;	      /* whom its connections act for; NULL: themselves */
	bool has_lifeline;
	bool has_no_bpf;	  /* as on a host that refuses it */
	bool has_default_network; /* as dsecd has it; else --network none, which costs less */
	bool is_hurt;		  /* claims end engines and workers: other processes afterwards */
};

/* A BPF object of the engine: must be gone when it is. */
struct bpf_object {
	char kind; /* p, m, l */
	uint32_t id;
};

struct engine {
	struct engine_options options;
	char instance[32], socket[128], log[128], cgroup[128];
	pid_t keeper;	   /* 0: ended */
	int lifeline;	   /* our end; -1: none */
	struct dsec *d;	   /* a connection for claims */
	pid_t first_pid;   /* of the engine when it was ready */
	unsigned fd_count; /* its descriptors then, with our connection */
	unsigned worker_count;
	struct bpf_object objects[ENGINE_OBJECTS_MAX];
	unsigned object_count;
};

struct claim {
	const char *name;
	void (*run)(struct engine *e);
};

struct suite {
	const char *name;
	struct engine_options options;
	const struct claim *claims;
	unsigned claim_count;
};

#define CLAIM(name)                                                                                \
	{                                                                                          \
#name, name                                                                        \
	}
#define SUITE(name_, claims_, ...)                                                                 \
	{                                                                                          \
		.name = name_, .claims = claims_,                                                  \
		.claim_count = sizeof(claims_) / sizeof *(claims_), .options = {                   \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

/* Runs every claim, or those with argv[1] in their names; what main() returns. */
int suites_main(int argc, char **argv, const struct suite *suites, unsigned count);

/* Notes a failure and goes on. */
bool expect_at(bool holds, const char *file, int line, const char *what);
#define expect(condition) expect_at((condition), __FILE__, __LINE__, #condition)
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* For engines beside the suite's own. Starting waits until clients can connect. */
bool engine_start(struct engine *e, const struct engine_options *options);
/* SIGTERM, its end, and what must be true then: status 0, nothing left. */
void engine_end(struct engine *e);
/* Waits for an end that something else brings about; the keeper's wait status, -1: too late. */
int engine_wait(struct engine *e, unsigned ms);
/* Nothing of it is left: no cgroup, process, socket, mount, BPF object. */
void engine_expect_gone(struct engine *e);
/* It holds nothing but what an idle engine holds; waits for it. */
void engine_expect_idle(struct engine *e);
/* What it holds now is what an idle engine holds: it loads some things for the first who asks. */
void engine_baseline(struct engine *e);
/* A connection of its own; NULL is noted. */
struct dsec *engine_connect(struct engine *e);
bool engine_log_has(const struct engine *e, const char *text);
const char *engine_images(void);
/* What engines keep over their ends. */
const char *engine_state(void);

/* The engine process below the keeper, 0: none now. */
pid_t engine_pid(const struct engine *e);
/* Launcher workers, PID 1s, everything in sandboxes: how many, and the first `max` pids. */
unsigned engine_workers(const struct engine *e, pid_t *ret, unsigned max);
unsigned engine_inits(const struct engine *e, pid_t *ret, unsigned max);
unsigned engine_members(const struct engine *e, pid_t *ret, unsigned max);
/* How many of the latter run a program of this name. */
unsigned engine_running(const struct engine *e, const char *name);
unsigned engine_named(const struct engine *e, const char *name, pid_t *ret, unsigned max);
/* The slot ("s0/b12") that a process of a sandbox lives in. */
bool engine_slot_of(const struct engine *e, pid_t pid, char ret[static 32]);
uint64_t process_rss_bytes(pid_t pid);
unsigned process_fd_count(pid_t pid);

uint64_t now_ms(void);
void pause_ms(unsigned ms); /* between two looks, never instead of one */

/* Looks again and again until it holds, at most so long (see longer()); whether it did. */
#define until(ms, condition)                                                                       \
	({                                                                                         \
		uint64_t until_end_ = now_ms() + longer(ms);                                       \
		bool until_holds_;                                                                 \
		while (!(until_holds_ = (condition)) && now_ms() < until_end_)                     \
			pause_ms(1);                                                               \
		until_holds_ || (condition);                                                       \
	})
