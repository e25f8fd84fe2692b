/* A user namespace for probes, made as the launcher makes a slot's. */
#pragma once

/* First of the 65,536 uids that probes map: above every range an instance can get. */
#define PROBE_UID 3300000000u

struct userns {
	int pid;	       /* a child that waits in it */
	int fd;		       /* nsfs */
	int tell_fd, await_fd; /* to and from the child */
};

/*
 * A child of uid PROBE_UID makes it, we write its maps. `inside` runs in it afterwards, with all
 * capabilities there; its result is userns_end()'s. `*ret_step` says what failed.
 */
int userns_start(struct userns *ns, int (*inside)(void), const char **ret_step);
/* Lets `inside` run and waits for its end: its result. */
int userns_end(struct userns *ns);
/* Ends the child without running `inside`. */
void userns_done(struct userns *ns);
