/*
 * Loops on threads of their own that send each other mail as fast as they can: every mail arrives,
 * in the order its sender sent it, and a sleeping loop wakes. A lost one hangs, which is a failure
 * by the test's time limit. Runs under ThreadSanitizer too.
 */
#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/io.h"

enum { LOOPS_MAX = 4 };

struct load {
	const char *name;
	unsigned loops, tokens; /* tokens of each loop, each bounces off another loop and back */
	unsigned sends;		/* of each loop, bounces not counted */
	unsigned entries;
	bool dozes; /* receivers stop now and then, so that more arrives than their queue holds */
};

struct token {
	struct mail mail;
	unsigned from, to; /* of this leg */
	unsigned owner;
	uint64_t sequence;
};

struct loop {
	struct race *race;
	unsigned index;
	struct io *io;
	struct token *tokens, lasts[LOOPS_MAX];
	unsigned sent, retired, lasts_seen;
	uint64_t next_sequence[LOOPS_MAX]; /* by target */
	uint64_t expected[LOOPS_MAX];	   /* by sender */
	uint64_t received, disordered;
	struct io_stats stats;
};

struct race {
	const struct load *load;
	pthread_barrier_t barrier;
	struct loop loops[LOOPS_MAX];
};

static void token_send(struct loop *loop, struct token *token, unsigned to)
{
	token->from = loop->index;
	token->to = to;
	token->sequence = loop->next_sequence[to]++;
	mail_send(loop->io, loop->race->loops[to].io, &token->mail);
}

static void last_delivered(struct mail *mail, void *owner);

static void token_retire(struct loop *loop)
{
	if (++loop->retired < loop->race->load->tokens)
		return;
	for (unsigned i = 0; i < loop->race->load->loops; i++) {
		struct token *last = &loop->lasts[i];

		*last = (struct token){ .mail.deliver = last_delivered };
		token_send(loop, last, i);
	}
}

/* The owner sends the token on its way, to each of the others in turn. */
static void token_launch(struct loop *loop, struct token *token)
{
	const struct load *load = loop->race->load;

	if (loop->sent == load->sends) {
		token_retire(loop);
		return;
	}
	loop->sent++;
	token_send(loop, token, (loop->index + 1 + loop->sent % (load->loops - 1)) % load->loops);
}

static void token_check(struct loop *loop, const struct token *token)
{
	assert(token->to == loop->index);
	loop->received++;
	if (token->sequence != loop->expected[token->from])
		loop->disordered++;
	loop->expected[token->from] = token->sequence + 1;
}

static void token_delivered(struct mail *mail, void *owner)
{
	struct token *token = container_of(mail, struct token, mail);
	struct loop *loop = owner;

	token_check(loop, token);
	if (loop->race->load->dozes && loop->received % 1024 == 0)
		usleep(500);
	if (token->owner == loop->index)
		token_launch(loop, token);
	else
		token_send(loop, token, token->owner);
}

static void last_delivered(struct mail *mail, void *owner)
{
	struct loop *loop = owner;

	token_check(loop, container_of(mail, struct token, mail));
	loop->lasts_seen++;
}

static void *loop_run(void *argument)
{
	struct loop *loop = argument;
	const struct load *load = loop->race->load;
	int r = io_open(&(struct io_options){ .entries = load->entries, .owner = loop }, &loop->io);

	if (r < 0) {
		fprintf(stderr, "io_open: %d %s\n", r, io_explain(r));
		exit(1);
	}
	pthread_barrier_wait(&loop->race->barrier);
	for (unsigned i = 0; i < load->tokens; i++) {
		loop->tokens[i].mail.deliver = token_delivered;
		loop->tokens[i].owner = loop->index;
		token_launch(loop, &loop->tokens[i]);
	}
	while (loop->lasts_seen < load->loops) {
		r = io_turn(loop->io, UINT64_MAX);
		assert(r >= 0);
	}
	r = io_turn(loop->io, 0); /* what the last callbacks sent leaves */
	assert(r >= 0);
	pthread_barrier_wait(&loop->race->barrier);
	loop->stats = *io_stats(loop->io);
	io_close(loop->io);
	return NULL;
}

static int race_report(struct race *race, uint64_t took_ns)
{
	const struct load *load = race->load;
	uint64_t sent = 0, received = 0, disordered = 0, turns = 0, resent = 0, overflows = 0;
	uint64_t lost = 0, wanted = load->loops * (2ull * load->sends + load->loops);

	for (unsigned i = 0; i < load->loops; i++) {
		struct loop *loop = &race->loops[i];

		sent += loop->stats.mails_sent;
		received += loop->received;
		disordered += loop->disordered;
		turns += loop->stats.turns;
		resent += loop->stats.mails_resent;
		lost += loop->stats.mails_lost;
		overflows += loop->stats.overflows;
	}
	printf("%s: %lu mails, %lu ns each, %.1f per turn, %lu resent, %lu overflows, "
	       "%lu out of order\n",
	       load->name, received, took_ns / received, (double)received / (double)turns, resent,
	       overflows, disordered);
	return sent == wanted && received == wanted && !disordered && !lost ? 0 : -1;
}

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static int race_run(const struct load *load)
{
	struct race *race = calloc(1, sizeof *race);
	pthread_t threads[LOOPS_MAX];
	uint64_t began_ns = clock_ns();
	int r;

	assert(race);
	race->load = load;
	pthread_barrier_init(&race->barrier, NULL, load->loops);
	for (unsigned i = 0; i < load->loops; i++) {
		race->loops[i].race = race;
		race->loops[i].index = i;
		race->loops[i].tokens = calloc(load->tokens, sizeof(struct token));
		assert(race->loops[i].tokens);
	}
	for (unsigned i = 0; i < load->loops; i++)
		if (pthread_create(&threads[i], NULL, loop_run, &race->loops[i]))
			exit(1);
	for (unsigned i = 0; i < load->loops; i++)
		pthread_join(threads[i], NULL);
	r = race_report(race, clock_ns() - began_ns);
	for (unsigned i = 0; i < load->loops; i++)
		free(race->loops[i].tokens);
	pthread_barrier_destroy(&race->barrier);
	free(race);
	return r;
}

int main(void)
{
	static const struct load loads[] = {
		{ "two loops, one mail at a time", 2, 1, 50000, 64, false },
		{ "two loops, flooded", 2, 1024, 1000000, 64, false },
		{ "four loops", 4, 64, 100000, 64, false },
		{ "four loops with tiny queues", 4, 256, 100000, 1, true },
	};
	unsigned failed = 0, count = sizeof loads / sizeof loads[0];

	for (unsigned i = 0; i < count; i++)
		if (race_run(&loads[i]) < 0)
			failed++;
	printf("Tested: %u\n", count);
	return failed ? 1 : 0;
}
