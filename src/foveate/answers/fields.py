"""Names of one thing on forms, letters, receipts and signs, in English: "supplier", "vendor", "who supplies it".

A row of the table is a field: the type of its answer, names that stand beside it on pages, and after the stroke other
ways to ask for it. Phrases are separated by commas. A question that holds any phrase of a row looks for all its names.

It was written from general knowledge of documents, not from a set of pages: benchmarks/reading.py says what it brings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

_FIELDS = """
person: recipient, to, attn, attention, addressee, consignee, ship to, shipped to, deliver to, deliver, sent to, send
    to, for the attention of | addressed to, to whom, for whom, receive, receives, sent it to, who gets, addressed
person: sender, from, sent by, shipper, consignor, return to, return address | from whom, sent it, sends, who wrote
    it, wrote
person: cc, copy to, copies to, bcc, copy, copies, carbon copy, distribution | received a copy, get a copy, got a
    copy, copied
person: author, written by, prepared by, originator, originated by, compiled by, drafted by, by | wrote it, wrote
    this, wrote, prepared it, prepared, originated
person: requested by, requester, requestor, request by, applicant, requisitioner | made the request, requested it,
    asked for it, requested, who requests
person: submitted by, submitter, presented by | submitted it, submitted, submits, handed it in
person: approved by, approval, authorized by, authorised by, authorization | approved it, approved, authorized it,
    authorized, allowed it
person: reported by, reporter | reported it, reported
person: received by, receiver | received it
person: signature, signed, signed by, sign | who signed, signed it
person: cashier, clerk, served by, operator, server, teller, waiter, waitress, staff, salesperson, assistant | who
    served, served us, served me, rang it up
person: manager, supervisor, director, head, chief, leader | in charge, manages it, responsible
person: contact, contact person, contact name, inquiries, enquiries | contacted, get in touch, ask for, talk to, speak
    to
person: customer, client, buyer, bill to, billed to, sold to, purchaser, invoice to, account name, charge to | who
    bought, bought it, buys, who pays, billed, invoiced, who was charged
person: patient, patient name | treated
person: doctor, dr, physician, prescriber, prescribed by | prescribed it, prescribed, prescribes
person: passenger, traveller, traveler, passenger name | travels, who is flying, travelling, traveling
person: guest, guest name | who is staying
person: holder, cardholder, name of holder, owner | owns it, owns, whose is
person: name, full name | is called, called
person: surname, last name, family name | family called
person: given name, first name, given names, forename |
person: investigator, researcher, analyst, tested by, conducted by | investigated, tested it, conducted it, did the
    test
person: instructor, teacher, lecturer, tutor, speaker | teaches, taught
person: employee, staff member, worker | employed
org: supplier, vendor, seller, sold by, supplied by, provider, distributor, merchant | supplies, supplied, sells, sold
    it, who sold, delivers it, provides
org: manufacturer, manufactured by, made by, producer, produced by, maker, mfr, mfg | makes, made it, who made,
    manufactured, produced, manufactures, produces
org: company, firm, business, corporation, organization, organisation, employer, company name | which company, which
    firm, what company
shop: shop, store, restaurant, cafe, hotel, pharmacy, market, supermarket, issuer | which shop, which store
org: bank, bank name | which bank
org: school, university, college, institution | study, studied
org: department, dept, division, unit, office | which department
org: brand, make, trademark, brand name |
product: product, item, article, goods, model, product name, merchandise, brand | what was bought, was bought, was
    sold, purchased
subject: re, subject, regarding, title, concerning, topic, ref, in re | about, deal with, deals with
text: remarks, remark, comments, comment, notes, note, observations, memo, message, additional information | remarked,
    commented, noted, remarks were made
text: description, descr, desc, details, particulars | described, describe
text: reason, purpose, cause, objective, grounds | why
text: instructions, directions, how to use, usage | how is it used, used, how do i use, how to use it
text: ingredients, contains, composition, contents | made of, in it, consist of
text: warning, caution, danger, attention, warnings | dangerous, warned, beware
text: allergens, contains, may contain | allergic, allergy
text: dosage, dose, directions | how often, how many times, should i take, how much should
text: storage, store, keep, storage conditions | stored, kept, keep it
text: conclusion, conclusions, summary, result, results, findings | concluded, found out, come out
text: status, condition, state |
text: diagnosis, findings | diagnosed, wrong with
text: method of payment, payment method, payment, paid by, payment type | paid for, was it paid, how was it paid
text: terms, payment terms, conditions |
date: date, dated, day, date of issue, issue date, issued, dt | when, which day, what day, written, was it written,
    issued
date: due date, payment due, due, deadline, payable by, pay by, due by, closing date, due on, return by | must it be
    paid, be paid by, by when, latest, must be returned, is it due, to be paid
date: expiry date, expiration date, expires, exp, valid until, valid to, valid thru, best before, use by, expiry, exp
    date, bb, good thru, valid through, date of expiry | run out, expire, expires, how long is it valid, valid, go off
date: date of birth, dob, born, birth date, birthday, birthdate | born, birthday, birth
date: delivery date, date delivered, delivered, delivery, date shipped, shipped, ship date | delivered, arrive at the
    customer, be delivered
date: date received, received, receipt date, received on, rec'd | was it received, received
date: order date, date of order, ordered | was it ordered, ordered
date: invoice date, date of invoice, bill date, billing date | was it invoiced
date: departure, departs, depart, dep, leaves, departure time | leave, leaves, depart, depart from, start
date: arrival, arrives, arr, arrive, arrival time | arrive, arrives, get there
date: check in, checkin, check-in, arrival date | arrive
date: check out, checkout, check-out, departure date |
time: opening hours, hours, open, opening times, business hours | opens, open, when does it open, when is it open,
    closes, close
time: time, hour, start time, starts, begins, doors | what time, at what time, begin, start, starts, begins
time: boarding, boarding time | board, boarding
phone: phone, telephone, tel, ph, phone no, tel no, mobile, cell, phone number, telephone number, call, hotline, ext,
    t | number can i call, call, ring, dial, reach them, phone them, calls
phone: fax, facsimile, telefax, fax no, fax number, telecopier, telecopy | faxed
email: email, e-mail, mail, email address | write to, electronic mail
url: website, web, www, url, internet, homepage, web site, online | visit online, web page
address: address, addr, location, located, street | where is the shop, where is the store, located, find them, live,
    lives, based
address: delivery address, ship to, shipping address, deliver to | delivered to, shipped to, sent to
address: billing address, bill to, invoice address | billed to
place: city, town, place, location, state, province, county, country, region | in which place, in which city, in which
    town, whereabouts
place: place of birth, birthplace, born in | born
place: destination, to, bound for | going to, go to, headed, goes to, heading to, bound
place: origin, from, departure | come from, comes from, start from, leaves from
place: venue, location, place | take place, held
number: number, no, nr, num, id, code | which number
number: invoice number, invoice no, invoice, inv no, inv, bill no, bill number, document no, doc no,
    receipt no |
number: receipt number, receipt no, rcpt, receipt, invoice no, bill no, document no, doc no, slip no,
    transaction no, trans no, check |
number: order number, order no, order, po number, po, purchase order, order id |
number: account number, account no, a/c, acct, account, a/c no, iban | account
number: reference number, reference, ref, ref no, reference no, our ref, your ref | refer
number: document number, document no, doc no, doc number, doc, invoice no, bill no, receipt no, reference no |
number: registration number, reg no, registration no, reg, registration, registered no |
number: tax number, tax id, vat no, vat number, vat id, gst no, gstin, tin, ein, tax reg no, uid, siret, abn |
number: serial number, serial no, s/n, sn, serial |
number: part number, part no, p/n, sku, article number, art no, item no, item number |
number: batch number, batch, lot, lot no, lot number, batch no |
number: passport number, passport no |
number: licence number, license no, license number, dl, licence no |
number: flight, flight no, flight number | which flight
number: seat, seat no, seat number | which seat, sit
number: gate, gate no | which gate
number: platform, track, plf | which platform, which track
number: room, room no, room number | which room
number: table, table no | which table
number: page, pages, page no, number of pages, no of pages | how many pages, pages are there
number: car, carriage, coach, wagon |
number: license plate, plate, registration, plate no | licence plate
number: postcode, zip, zip code, postal code, post code |
number: version, revision, rev | which version
number: project number, project no, project |
amount: total, grand total, amount due, balance due, total due, total amount, sum, amount payable, to pay, net
    payable, total price, sum total | have to pay, must pay, to be paid, overall, in all, altogether, did it cost in
    total, owe, owed, bill come to, paid in total
amount: subtotal, sub total, sub-total, net, net amount, total excl | before tax, without tax
amount: tax, vat, gst, sales tax, mwst, iva, tva, btw, hst, pst, ust, tax amount | taxes
amount: discount, rebate, less, saving, savings, reduction, you saved | saved, taken off, save
amount: price, unit price, cost, rate, fee, charge, fare, each, amount | cost, costs, how expensive, how much,
    charged, priced
amount: amount, amt, value, cost, price | how much, how much is it
amount: cash, cash tendered, tendered, amount tendered, cash paid, amount paid, paid | paid in cash, was handed over,
    was paid, cash was paid
amount: change, change due, cash back, your change | given back, change was given, returned, got back, get back
amount: tip, gratuity, service charge, service | tipped
amount: shipping, postage, freight, delivery charge, shipping and handling, delivery fee | was the delivery
amount: deposit, down payment, advance |
amount: balance, closing balance, outstanding, remaining | left, remains, still open
amount: salary, wage, pay, net pay, gross pay, wages | earn, earns, earned
amount: budget, estimated cost, cost estimate |
amount: interest, interest rate, apr |
count: quantity, qty, count, units, pieces, pcs, number of items, items, no of items | how many, number of
measure: weight, net weight, net wt, gross weight, wt, mass, net | heavy, weigh, weighs
measure: size, dimensions, measurements, format, length, width, height | how big, how large, how long, how wide, how
    tall, how high
measure: volume, capacity, contents, net contents |
measure: temperature, temp | hot, warm, cold
measure: speed, speed limit, max speed | fast
measure: duration, period, length, term | how long, last, takes
measure: distance, mileage, km, miles | how far, far
measure: age, years | how old, old
text: gender, sex |
text: nationality, citizenship | citizen
text: occupation, profession, job title, position, job, title | work as, works as, do for a living
text: class, category, type, kind, sort | what kind, which kind, what type, which class
text: colour, color |
text: language, languages |
text: event, occasion, function, name of event | occasion
text: course, subject, class |
text: signature |
"""

# Shortened words and their whole: either side of a question or a page may have either.
_SHORT = """
acct account, addr address, amt amount, approx approximately, appt appointment, apr april, assoc association, asst
assistant, attn attention, aug august, ave avenue, avg average, bal balance, bldg building, blvd boulevard, calc
calculated, cert certificate, co company, cont continued, corp corporation, ctr center, cust customer, dec december,
dep departure, dept department, desc description, descr description, dest destination, dir director, dist
distribution, div division, doc document, dr doctor, dt date, equip equipment, est estimated, est established, exp
expiry, exp expiration, ext extension, feb february, fri friday, gal gallon, govt government, hosp hospital, hq
headquarters, hr hour, hrs hours, ht height, hwy highway, inc incorporated, incl including, info information, init
initials, insp inspection, intl international, inv invoice, jan january, jul july, jun june, lab laboratory, lbs
pounds, lic license, loc location, ltd limited, mar march, max maximum, mfg manufacturing, mfr manufacturer, mgmt
management, mgr manager, min minimum, misc miscellaneous, mon monday, mo month, natl national, no number, nos numbers,
nov november, nr number, num number, oct october, orig original, oz ounces, pc piece, pcs pieces, pd paid, pg page, ph
phone, pkg package, pmt payment, pos position, pp pages, prep prepared, pres president, prev previous, prod product,
proj project, pt part, qty quantity, rcpt receipt, rcvd received, re regarding, recd received, ref reference, reg
registration, rep representative, req required, req request, resp responsible, rev revision, rm room, rpt report, sat
saturday, sched schedule, sec section, sec seconds, sept september, sep september, ser serial, sig signature, spec
specification, specs specifications, sq square, st street, std standard, subj subject, sun sunday, supp supplier, svc
service, tech technical, tel telephone, temp temperature, thu thursday, tue tuesday, univ university, veh vehicle, ver
version, vol volume, vs versus, wed wednesday, wk week, wt weight, yr year, yrs years, fax facsimile, phone telephone,
mtg meeting, dob birth, qtr quarter, pwd password, usr user, id identification
"""


class FieldNames(NamedTuple):
    """A thing that documents say: the type of its answer, its names on pages, and how it is asked for; phrases."""

    type: str
    names: tuple[tuple[str, ...], ...]
    asked: tuple[tuple[str, ...], ...]


def _read_fields() -> tuple[FieldNames, ...]:
    fields = []
    for row in " ".join(_FIELDS.split("\n    ")).strip().split("\n"):
        kind, _, rest = row.partition(":")
        names, _, asked = rest.partition("|")
        phrases = [tuple(tuple(p.split()) for p in part.split(",") if p.strip()) for part in (names, asked)]
        fields.append(FieldNames(kind, phrases[0], phrases[1]))
    return tuple(fields)


def _read_short() -> Mapping[str, tuple[str, ...]]:
    out: dict[str, list[str]] = {}
    for pair in " ".join(_SHORT.split()).split(","):
        short, whole = pair.split()
        out.setdefault(short, []).append(whole)
        out.setdefault(whole, []).append(short)
    return {word: tuple(others) for word, others in out.items()}


FIELDS = _read_fields()
SHORT = _read_short()
_NAMES = [name for field in FIELDS for name in field.names]
_COUNTS = Counter(word for name in _NAMES if len(name) > 1 for word in name)
_OTHERS = "open store shop restaurant hotel cafe market bank school university college street"
# What labels are made of: names of one word, and words of several names; without what is as often something else.
LABEL_WORDS = frozenset(
    word
    for word in {
        *(name[0] for name in _NAMES if len(name) == 1),
        *(word for word, count in _COUNTS.items() if count > 2),
    }
    if len(word) > 1 and word not in _OTHERS.split()
)
