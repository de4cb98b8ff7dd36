// Rounds of questions and the pointer as gaze: priors of the next question.

export function mountDialogue(app, root) {}
