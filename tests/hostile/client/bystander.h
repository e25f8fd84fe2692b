/*
 * A client that asks for the same small thing all the time, at a modest rate, on a connection and
 * a thread of its own: how it fares beside an attack. What it sees is a figure, printed with that
 * of a while alone; whoever is held up is judged by the claims.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "dsec/dsec.h"

enum { BYSTANDER_SAMPLES = 8192 };

struct bystander {
	struct dsec *d;
	pthread_t thread;
	atomic_bool over;
	uint32_t count, took_us[BYSTANDER_SAMPLES]; /* more than fit are not kept */
	uint32_t alone_p50_us, alone_p99_us;
};

/* Connects, and sees how it is alone. 0 or -errno. */
int bystander_open(struct bystander *by, const char *address);
void bystander_close(struct bystander *by);
/* From here to bystander_stop() it asks. 0 or -errno. */
int bystander_start(struct bystander *by);
/* Prints how it fared. */
void bystander_stop(struct bystander *by);
