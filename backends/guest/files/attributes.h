/* Extended attributes of files in archives. */
#pragma once

struct archive_entry;
struct files;

/*
 * Those of an open file or folder into an archive's entry. What does not fit is told as the row
 * DSEC_FILE_REASON_ATTRIBUTES of `name`; else 0, or the error of that telling.
 */
int attributes_read(struct files *f, int fd, struct archive_entry *entry, const char *name);

/*
 * Those of an archive's entry onto what was made of it. What cannot be set is told likewise; an
 * error is that there is no memory, or that of the telling.
 */
int attributes_put(struct files *f, int fd, struct archive_entry *entry);
