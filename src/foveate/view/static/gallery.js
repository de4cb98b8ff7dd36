// The images of a folder or a store: pages of thumbnails, search.

export function mountGallery(app, root) {}
