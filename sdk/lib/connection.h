/*
 * What a connection consists of, for the files of libdsec. One mutex guards all of it, except where
 * a field says otherwise; a thread leaves the mutex only to sleep (wait.c).
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <dsec/dsec.h>
#include <dsec/ring.h>

#include "sdk/lib/arena.h"
#include "sdk/lib/event.h"
#include "sdk/lib/told.h"

enum {
	TICKETS_MAX = 1 << 20, /* under way at once, per connection */
	REAP_EVENTS_MAX = 256, /* per turn: the lock is not held for longer */
	CLOSE_WAIT_MS = 10 * 1000,
	HANDSHAKE_WAIT_MS = 30 * 1000,
	KEPT_BYTES_MAX = 256 << 20, /* payloads that may have to be sent again, per connection */
};

struct pack;

/* Of one stream of a request, in bytes from its beginning; of a subscription, in events. */
struct consumption {
	uint64_t received, consumed;
	uint64_t credited; /* what the engine was told of it */
	uint64_t base;	   /* where the engine at the other end began to count */
};

/* A request under way: from its submission until the caller took its last event. */
struct ticket {
	int64_t name; /* generation << 20 | place in the table; the wire's ticket too */
	uint64_t tag;
	struct dsec_queue *queue; /* NULL: dsec_wait() */
	uint16_t op;
	bool used;
	bool ended;	/* its last event was received */
	bool abandoned; /* nobody wants its events */
	bool ready;	/* linked in queue->ready */
	uint32_t channel;
	uint32_t indexes;    /* events with an index so far: their numbers are modulo 65536 */
	uint64_t payload_at; /* in the arena; UINT64_MAX: none */
	struct event *first, **last; /* not taken yet */
	struct event *spare;	     /* for losing the connection without memory */
	struct capture *capture;
	struct ticket *older, *newer; /* under way: without the last event, in order of asking */
	struct dsec_ring_request request;
	void *payload;		       /* NULL: there is none, or it is never sent again */
	int64_t deadline_ns, retry_ns; /* retry: if not sent, then not before */
	int64_t patience_ns;	       /* the engine may say "still under way" until then */
	bool sent;		       /* the engine has it */
	bool is_patient;	       /* a refusal is asked again, until its deadline */
	bool is_refused;	/* … and was the last that was heard: nothing of it happened */
	bool keeps_payload;	/* it may be sent again */
	struct event *refusals; /* CREATED that may come to nothing: not told yet */
	bool started;		/* STARTED was told */
	bool cancelled;		/* dsec_cancel() was called */
	uint32_t losses;	/* connections that went while the engine had it */
	bool is_stream, is_partial;   /* see submission; a part of its answer came */
	struct told told;	      /* CREATED and rows */
	uint64_t next_seq, seq_epoch; /* of a subscription: where it goes on; 0: as it began */
	uint32_t window_bytes;	      /* its DATA (or events: so many) come by credit; 0: no */
	struct consumption *streams;
	uint32_t stream_count;
	bool credit_due; /* more was consumed than could be told */
	uint32_t held;	 /* events taken by `holder` and not freed */
	pthread_t holder;
	uint32_t word; /* futex: changes with every event; atomic */
	uint32_t waiters;
	struct ticket *next; /* in queue->ready, or free */
};

struct dsec_queue {
	struct dsec *d;
	struct dsec_queue *next;
	struct ticket *ready, **ready_last; /* tickets with events */
	struct event *notices;		    /* RECONNECTED, before all else */
	uint32_t outstanding;		    /* tickets that name this queue */
	uint32_t word;			    /* futex: changes with every event; atomic */
	uint32_t woken;			    /* dsec_queue_wake() was called; atomic */
	uint32_t signaled;		    /* event_fd may be readable; atomic */
	uint32_t waiters;		    /* followers asleep on word */
	int event_fd;			    /* readable: there is something here */
	int epoll_fd;			    /* dsec_queue_fd(); -1: nobody asked */
};

/* A thread asleep; on its stack. */
struct waiter {
	uint32_t *word;
	uint32_t *waiters;
	struct dsec_queue *queue; /* NULL: it waits for a ticket, or for room */
	struct waiter *next, *previous;
};

struct posted {
	uint64_t at;
	uint32_t number, bytes;
	bool used;
};

/* One channel's memory, and our own counters. The shared ones are read, checked and not kept. */
struct channel {
	struct dsec_ring_channel *shared;
	unsigned char *requests, *events;
	struct dsec_ring_buffer *buffers;
	uint32_t submission_tail, buffer_tail;
	uint32_t completion_head; /* atomic: pending() reads it without the lock */
	struct posted *posted;	  /* by number & (buffer_entries - 1) */
	struct posted *spare;	  /* pieces whose turn to be posted has not come */
	uint32_t spares;
	uint32_t running; /* requests without their last event */
	int doorbell_fd;
};

/* Bytes that wait to be sent, or to become a whole message. */
struct stream_buffer {
	unsigned char *data;
	size_t at, bytes, capacity;
};

struct transport {
	/* -EAGAIN: no room now; -EMSGSIZE: never; others: the connection is lost. */
	int (*submit)(struct dsec *d, struct ticket *ticket, struct dsec_ring_request *request,
		      const void *payload);
	/* Dispatches what came: the number of events, or why the connection is lost. */
	int (*reap)(struct dsec *d, bool socket);
	/* Without the lock: has anything come? */
	bool (*pending)(struct dsec *d);
	/* By the one thread that will sleep. True: do not sleep, something came. */
	bool (*sleep_begin)(struct dsec *d, enum dsec_sleep mode);
	void (*sleep_end)(struct dsec *d);
	void (*ticket_end)(struct dsec *d, struct ticket *ticket);
	void (*close)(struct dsec *d);
};

/* Whether there is an engine at the other end. */
enum link {
	LINK_UP,
	LINK_BROKEN,  /* it went, and a leader that sleeps on it has yet to come back */
	LINK_AWAY,    /* nothing is open: the next try has its time */
	LINK_SHAKING, /* a socket is open: the handshake goes on as that says */
};

struct reconnect {
	struct dsec_open_opts opts; /* address and token are ours */
	char *address, *token, *tenant;
	const char *path;    /* within address, or a private engine's socket */
	int64_t patience_ns; /* 0: a lost connection stays lost */
	int64_t up_ns;	     /* since when the link is, or was, up */
	int64_t seen_ns;     /* when something was there to reap, or the socket was looked at */
	int64_t give_up_ns, try_ns, backoff_ns;
	bool heard;		     /* an event came over this link */
	uint32_t links;		     /* made again so far */
	struct handshake *handshake; /* LINK_SHAKING */
};

/* The engines' accounts of themselves: callers may look at old ones. */
struct caps_kept {
	struct dsec_caps caps;
	uint64_t engine_epoch; /* of the welcome */
	struct caps_kept *next;
};

struct private_engine {
	int lifeline_fd; /* -1: not ours */
	int pidfd;
	int log_fd; /* memfd: what it said */
	pid_t pid;
	char instance[32], socket[64];
};

/* An engine on another host. */
struct ssh {
	char *text;	  /* what the two below lie in; NULL: no such address */
	const char *host; /* "user@host" */
	const char *path; /* of the engine's socket there; NULL: as that host has it */
	pid_t pid;	  /* of ssh */
	int pidfd, log_fd;
};

struct dsec {
	pthread_mutex_t lock;
	uint32_t *birth; /* a page that a fork wipes: 1 in the process that opened */
	uint32_t references;
	bool closed;
	bool shared; /* ring: peers are woken by memory */
	bool many_cpus;
	int lost; /* -Exxx: the connection is, for good */
	const char *lost_detail;
	const struct transport *transport;
	int socket_fd; /* -1: LINK_AWAY */
	int kick_fd;   /* wakes a leader that waits for a ticket */
	enum link link;
	struct reconnect reconnect;

	/* ring.c */
	unsigned char *memory;
	unsigned char *arena_memory;
	struct dsec_ring_welcome welcome; /* checked by handshake.c */
	struct channel *channels;
	uint32_t channel_count;
	struct arena arena;
	/* stream.c */
	struct stream_buffer sending, receiving;
	uint32_t stream_running; /* as a channel's */

	/* ticket.c */
	struct ticket **tickets;
	uint32_t ticket_count, ticket_capacity;
	struct ticket *free_tickets;
	struct ticket *oldest, *newest; /* under way */
	uint64_t kept_bytes;
	uint32_t unsent;       /* of those under way */
	int64_t resend_due_ns; /* nothing can be done for them before */
	uint32_t credits_due;  /* tickets with credit_due */
	bool resend_blocked;   /* there was no room for the oldest of them */

	/* wait.c, queue.c */
	int timer_fd; /* tells applications that wait on descriptors what is due */
	int64_t timer_ns;
	struct dsec_queue *queues;
	uint32_t fd_users; /* queues with an epoll_fd */
	struct waiter *leader, *followers;
	bool leader_futex;
	uint32_t kicked; /* atomic: the leader shall not sleep */
	uint32_t spin_us;

	int64_t welcomed_ns; /* when the engine's clock was welcome.clock_ms */
	unsigned char random[256];
	uint32_t random_left;
	uint8_t id_next;
	struct caps_kept *caps; /* newest first */
	bool caps_known;	/* the newest is of this engine */
	struct private_engine engine;
	struct ssh ssh;
};

/* ---- open.c ---- */

int64_t dsec__clock_ns(void);
bool dsec__forked(const struct dsec *d);
/* May this process use it? First of all in every call: 0, -EINVAL, or -EOWNERDEAD in a child. */
int dsec__owned(const struct dsec *d, const char *what);
void dsec__unreference(struct dsec *d); /* with the lock, which it leaves */

int dsec__connect(struct dsec *d); /* one try, which never waits: d->socket_fd, or -errno */

/* ---- handshake.c ---- */

enum { HANDSHAKE_STEPS = 4 };

struct handshake {
	uint32_t step;	   /* HANDSHAKE_STEPS: over */
	size_t done_bytes; /* of this step's message */
	short events;	   /* what the socket has to be ready for */
	struct dsec_ring_step word;
	int memory_fd;
	int doorbell_fds[DSEC_CHANNELS_MAX];
	uint32_t doorbell_count;
};
void dsec__handshake_init(struct handshake *handshake);
/*
 * Goes as far as it can without waiting. 1: d->transport works; 0: wait for handshake->events;
 * -errno. Whatever it opened of the transport is the transport's to close.
 */
int dsec__handshake_step(struct dsec *d, struct handshake *handshake);
void dsec__handshake_done(struct handshake *handshake);

/* ---- reconnect.c ---- */

/*
 * The link broke, or the engine makes no sense: reconnect or end every ticket, by the error. What
 * needs a connection that nobody sleeps on comes later, from dsec__link_drive().
 */
void dsec__link_lose(struct dsec *d, int error);
/* What is due by the clock or the socket; > 0: callers should look again. */
int dsec__link_drive(struct dsec *d);
/* When dsec__link_drive() is wanted next if nothing else happens; INT64_MAX: never. */
int64_t dsec__link_due_ns(const struct dsec *d);
void dsec__reconnect_done(struct dsec *d);

/* ---- resend.c ---- */

/* Hands a ticket's request to the transport. Its results. */
int dsec__ticket_send(struct dsec *d, struct ticket *ticket);
/* It is under way, until dsec__ticket_settle(); nothing happens where it is not. */
void dsec__ticket_depart(struct dsec *d, struct ticket *ticket);
void dsec__ticket_settle(struct dsec *d, struct ticket *ticket);
/* The engine that had them is gone: those that nobody wants any more are too, the others wait. */
void dsec__tickets_recall(struct dsec *d);
/* Sends what waits, as far as it is due and there is room. > 0: tickets ended. */
int dsec__tickets_resend(struct dsec *d);
/* True: the engine's answer means "later", and so it will be. */
bool dsec__ticket_postpone(struct dsec *d, struct ticket *ticket, struct event *last);
/* True: a refused CREATED that is told with the last event, unless all of it is asked again. */
bool dsec__refusal_keep(struct ticket *ticket, struct event *event);
/* The next of those kept; NULL: none. */
struct event *dsec__refusal_take(struct ticket *ticket);
void dsec__refusals_forget(struct ticket *ticket);

/* ---- credit.c ---- */

/* An event of the ticket came. -EPROTO, -ENOMEM. */
int dsec__credit_received(struct ticket *ticket, struct event *event);
/* The caller freed it. */
void dsec__credit_consumed(struct dsec *d, struct ticket *ticket, const struct event *event);
/* There may be room for those that had none. */
void dsec__credits_send(struct dsec *d);
/* The engine had no room for a credit: it is due again. */
void dsec__credit_refused(struct dsec *d, const struct ticket *credit);
/* The request goes again, and on from what was received. */
void dsec__credit_forget(struct dsec *d, struct ticket *ticket);
/* Into its payload: where its streams go on. */
void dsec__credit_resume(struct ticket *ticket);
void dsec__credit_done(struct dsec *d, struct ticket *ticket);

/* ---- subscribe.c ---- */

/* An event of a ticket came, of any op. */
void dsec__subscribed_event(struct ticket *ticket, const struct dsec_event *event);
/* Into its payload: the next event. */
void dsec__subscription_resume(struct ticket *ticket);

/* ---- submit.c ---- */

/* Bytes nobody can guess; with the lock. -EIO. */
int dsec__random(struct dsec *d, uint8_t *bytes, uint32_t count);

/* ---- ring.c, stream.c ---- */

/* Of these, number[0] is the ticket of a request that they end or move on. */
static inline bool dsec__op_names_ticket(uint16_t op)
{
	return op == DSEC_OP_CANCEL || op == DSEC_OP_CREDIT || op == DSEC_OP_INPUT;
}

/*
 * Has a channel as many requests as the engine takes at once? One more would wait in it, and behind
 * it what ends those before it or moves them on, which the engine takes beyond that limit.
 */
static inline bool dsec__must_wait(const struct dsec *d, uint16_t op, uint32_t running)
{
	if (dsec__op_names_ticket(op) || op == DSEC_OP_SIGNAL || op == DSEC_OP_RESIZE ||
	    op == DSEC_OP_DESTROY)
		return false;
	return running >= d->welcome.submission_entries;
}

extern const struct transport dsec__ring, dsec__stream;
int dsec__ring_open(struct dsec *d, struct handshake *handshake);
int dsec__stream_open(struct dsec *d);

/* ---- private.c ---- */

/* Starts an engine and waits until it is ready; its socket is in d->engine.socket. */
int dsec__private_start(struct dsec *d, const char *images);
void dsec__private_stop(struct dsec *d);

/* ---- ssh.c ---- */

/* What follows "ssh:". */
int dsec__ssh_parse(struct dsec *d, const char *address);
/* As dsec__connect(). */
int dsec__ssh_connect(struct dsec *d);
/* Nothing more is sent; waits until all has arrived and ssh has ended, CLOSE_WAIT_MS at most. */
void dsec__ssh_finish(struct dsec *d);
/* Ends what there still is of it. */
void dsec__ssh_stop(struct dsec *d);
/* The handshake failed by r: what ssh said of it. Returns what it is to the caller. */
int dsec__ssh_failed(struct dsec *d, int r);

/* ---- ticket.c ---- */

struct ticket *dsec__ticket_new(struct dsec *d);
struct ticket *dsec__ticket_find(struct dsec *d, int64_t name);
/* Its last event did not come yet. */
bool dsec__ticket_is_under_way(struct dsec *d, int64_t name);
void dsec__ticket_release(struct dsec *d, struct ticket *ticket);
struct event *dsec__ticket_take(struct ticket *ticket);
/* An event from the engine; payload may still be shared. -EPROTO: it makes no sense. */
int dsec__dispatch(struct dsec *d, const struct dsec_ring_event *wire, const void *payload);
/* Ends every ticket with DSEC_LOST. Only the first reason counts. */
void dsec__lose(struct dsec *d, int error, const char *detail);
/* One ticket alone. */
void dsec__ticket_lose(struct dsec *d, struct ticket *ticket, int error, const char *detail);
/* What the engine said when it refused, and that it is the result now: there is no time left. */
void dsec__refusal_note(struct ticket *ticket, const struct dsec_status *status);
void dsec__ticket_refuse(struct dsec *d, struct ticket *ticket);
void dsec__tickets_done(struct dsec *d);

/* ---- wait.c ---- */

int64_t dsec__deadline(int timeout_ms);
/* It is known that the engine went: what it said before still counts, then the link is lost. */
void dsec__link_end(struct dsec *d);
/* Has the engine gone while nobody watched? True: something came. */
bool dsec__link_look(struct dsec *d);
/* With the lock. 0: look again; -ETIMEDOUT. */
int dsec__wait(struct dsec *d, struct waiter *waiter, int64_t deadline_ns);
/* Before a thread that waited leaves the library: somebody else must watch. With the lock. */
void dsec__wait_leave(struct dsec *d);
void dsec__leader_kick(struct dsec *d); /* there is one; it looks again */
void dsec__ticket_notify(struct dsec *d, struct ticket *ticket);
void dsec__queue_notify(struct dsec_queue *q);
void dsec__queue_rouse(struct dsec_queue *q); /* one follower; without the lock, from a signal */

/* ---- queue.c ---- */

void dsec__queue_link(struct ticket *ticket);
void dsec__queue_signal(struct dsec_queue *q); /* async-signal-safe */
void dsec__queue_free(struct dsec_queue *q);   /* memory and descriptors only */
/* Queues' descriptors watch the socket for being writable too, or no longer. */
void dsec__queues_watch_output(struct dsec *d, bool watch);
/* They watch d->socket_fd at all, or no longer. -errno: some do not. */
int dsec__queues_watch_socket(struct dsec *d, bool watch);
/* Memory for a RECONNECTED in each; then they have it. -ENOMEM: none has. */
int dsec__queues_tell_reconnected(struct dsec *d);

/* ---- submit.c ---- */

/* Checks what every request has in common. */
int dsec__call_take(struct dsec *d, const struct dsec_call *given, struct dsec_call *known);

struct submission {
	uint16_t op;
	struct dsec_id subject;
	void *payload; /* freed by dsec__submit() */
	size_t payload_bytes;
	uint64_t numbers[3], offset, exec;
	uint32_t window_bytes;
	bool is_stream;		 /* it takes bytes that cannot be given again: never sent twice */
	struct capture *capture; /* owned by dsec__submit() */
	bool internal;		 /* its events are dropped */
};
/*
 * The payload of a request, of its struct and what was packed after it. On failure it is freed, and
 * the error said.
 */
int dsec__pack_end(struct pack *pack, const void *content, size_t bytes,
		   struct submission *submission);
/* With the lock. -ENOENT: nothing of that name is under way. */
int dsec__cancel(struct dsec *d, int64_t ticket);
int64_t dsec__submit(struct dsec *d, const struct dsec_call *call, struct submission *submission);
/* With the lock, without waiting and without a payload. 0 or as a transport's submit(). */
int dsec__submit_now(struct dsec *d, const struct dsec_call *call, struct submission *submission);
