// A vision-language model's answer, beside the tokens that it saw.

export function mountAnswers(app, root) {}
