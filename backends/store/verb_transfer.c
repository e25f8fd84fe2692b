/* What dsec-store push and pull tell: progress, why they failed, what was copied. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "backends/store/file.h"
#include "backends/store/transfer.h"
#include "backends/store/verb.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

int transfer_progress(void *owner, uint64_t bytes)
{
	struct store_job *job = owner;

	job->report.frame.bytes += bytes;
	return report_progress(&job->report);
}

int transfer_fail(struct store_job *job, const struct transfer *transfer, int error)
{
	if (transfer->step)
		job->report.step = transfer->step;
	return report_fail(&job->report, -error, *transfer->what ? transfer->what : NULL,
			   transfer->why ? transfer->why : strerror(-error));
}

int transfer_report(struct store_job *job, const struct transfer *transfer,
		    const struct store_images *images)
{
	char text[512 + IMAGE_MANIFESTS_MAX * (DIGEST_TEXT_BYTES + 4)], digest[DIGEST_TEXT_BYTES];
	struct json_writer w;
	int r;

	json_open(&w, text, sizeof text);
	json_object(&w, NULL);
	json_array(&w, "manifests");
	for (uint32_t i = 0; i < images->count; i++) {
		digest_text(images->manifests[i], digest);
		json_string(&w, NULL, digest);
	}
	json_end(&w);
	json_unsigned(&w, "new_blobs", transfer->new_blobs);
	json_unsigned(&w, "shared_blobs", transfer->shared_blobs);
	json_unsigned(&w, "new_bytes", transfer->new_bytes);
	json_unsigned(&w, "shared_bytes", transfer->shared_bytes);
	json_bool(&w, "lazy", transfer->is_lazy);
	json_end(&w);
	r = json_close(&w);
	if (r < 0)
		return r;
	auto_close int fd = openat(IMAGE_FD_SCRATCH, STORE_REPORT,
				   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	job->report.frame.new_bytes = transfer->new_bytes;
	job->report.frame.shared_bytes = transfer->shared_bytes;
	return file_write(fd, text, w.bytes, 0);
}
