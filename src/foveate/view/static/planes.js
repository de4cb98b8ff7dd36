// All channels of the image as a strip; one can be laid over it.

export function mountPlanes(app, root) {}
